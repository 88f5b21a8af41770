package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// config is what the operator's configuration is in a cluster.
type config struct {
	settings requests.Settings
	headers  map[string]string
}

const (
	flagProfile   = "profile"
	flagProtocol  = "allow-protocol-2026"
	flagHeader    = "mcp-header"
	flagTrust     = "trust-domain"
	flagAudience  = "token-audience"
	flagVerify    = "token-verification"
	flagIssuer    = "token-issuer"
	flagSPIFFE    = "spiffe-from"
	flagStrategy  = "overrides-strategy"
	flagEvaluator = "max-named-evaluators"
)

func (c *config) register(flags *pflag.FlagSet) {
	s := &c.settings
	flags.StringVar(&s.Profile, flagProfile, plan.ProfileMCPGateway, "`NAME` of the profile: which MCP headers can be believed: "+plan.ProfileMCPGateway+" or "+plan.ProfileGeneric)
	flags.BoolVar(&s.AllowProtocol2026, flagProtocol, false, "believe the headers of MCP protocol "+plan.Version2026+" too; only where every MCP server is registered with a prefix")
	flags.StringToStringVar(&c.headers, flagHeader, nil, "other `NAMES` of the MCP headers: method=…,tool=…,prompt=…,resource=…,server=…")
	flags.Lookup(flagHeader).DefValue = "" // else the help says (default [])
	flags.StringVar(&s.TrustDomain, flagTrust, "", "SPIFFE trust `DOMAIN` in which ServiceAccounts have IDs of the form spiffe://DOMAIN/ns/…/sa/…")
	flags.StringArrayVar(&s.Audiences, flagAudience, []string{requests.DefaultAudience}, "`AUDIENCE` that the agents' tokens are made for; can be repeated")
	flags.StringVar(&s.Verify, flagVerify, kuadrant.VerifyTokenReview, "`WAY`: how Authorino verifies tokens: "+kuadrant.VerifyTokenReview+" or "+kuadrant.VerifyJWT)
	flags.StringVar(&s.Issuer, flagIssuer, "", "`URL` of the cluster's token issuer, for --"+flagVerify+" "+kuadrant.VerifyJWT)
	flags.StringVar(&s.SPIFFEFrom, flagSPIFFE, kuadrant.SPIFFEFromPeer, "`SOURCE`: where SPIFFE IDs come from: "+kuadrant.SPIFFEFromPeer+", or "+kuadrant.SPIFFEFromXFCC+" behind a gateway that sanitises x-forwarded-client-cert")
	flags.StringVar(&s.Strategy, flagStrategy, kuadrant.StrategyAtomic, "`STRATEGY` of the AuthPolicy's overrides: "+kuadrant.StrategyAtomic+" or "+kuadrant.StrategyMerge)
	flags.IntVar(&s.MaxNamedEvaluators, flagEvaluator, kuadrant.DefaultMaxNamedEvaluators, "`NUMBER` of policies that get an Authorino evaluator of their own")
}

// options are the settings of a file (empty where there is none) with the flags that were given in their place.
func (c *config) options(flags *pflag.FlagSet, file requests.Settings) (translator.Options, error) {
	given := c.settings
	for flag, set := range map[string]func(){
		flagProfile:   func() { file.Profile = given.Profile },
		flagProtocol:  func() { file.AllowProtocol2026 = given.AllowProtocol2026 },
		flagTrust:     func() { file.TrustDomain = given.TrustDomain },
		flagAudience:  func() { file.Audiences = given.Audiences },
		flagVerify:    func() { file.Verify = given.Verify },
		flagIssuer:    func() { file.Issuer = given.Issuer },
		flagSPIFFE:    func() { file.SPIFFEFrom = given.SPIFFEFrom },
		flagStrategy:  func() { file.Strategy = given.Strategy },
		flagEvaluator: func() { file.MaxNamedEvaluators = given.MaxNamedEvaluators },
	} {
		if flags.Changed(flag) {
			set()
		}
	}
	if flags.Changed(flagEvaluator) && given.MaxNamedEvaluators < 1 {
		return translator.Options{}, usage("--%s is %d; at least 1 is needed", flagEvaluator, given.MaxNamedEvaluators)
	}
	opts, err := file.Options()
	if err != nil {
		return opts, usage("%s", err)
	}
	return opts, c.rename(&opts.Profile)
}

// rename gives the profile's headers other names. It adds none: a header that the router never sets is the client's.
func (c *config) rename(p *plan.Profile) error {
	fields := map[string]*string{"method": &p.MethodHeader, "tool": &p.ToolHeader, "prompt": &p.PromptHeader, "resource": &p.ResourceHeader, "server": &p.ServerHeader}
	for _, key := range slices.Sorted(maps.Keys(c.headers)) {
		field, name := fields[key], strings.ToLower(c.headers[key])
		switch {
		case field == nil:
			return usage("--%s: %q is not known; there are %s", flagHeader, key, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		case *field == "":
			return usage("--%s: the profile %s has no header for %s", flagHeader, p.Name, key)
		case !cel.ValidHeaderName(name):
			return usage("--%s: %q is not a header name", flagHeader, c.headers[key])
		}
		*field = name
	}
	return nil
}
