// Package settings holds the flags that say how policies are translated, which the operator and its command line have in
// common: a preview is only worth something when it is made with the words of the real thing.
package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// Flags are the flags and, once they are parsed, their values.
type Flags struct {
	settings requests.Settings
	headers  map[string]string
}

// Flags that the operator says more of.
const (
	// FlagAudience is the flag for the audience of tokens.
	FlagAudience = "token-audience"
	// FlagIssuer is the flag for the issuer of tokens.
	FlagIssuer = "token-issuer"
)

const (
	flagProfile   = "profile"
	flagProtocol  = "allow-protocol-2026"
	flagHeader    = "mcp-header"
	flagTrust     = "trust-domain"
	flagVerify    = "token-verification"
	flagSPIFFE    = "spiffe-from"
	flagStrategy  = "overrides-strategy"
	flagEvaluator = "max-named-evaluators"
	flagForm      = "envoy-gateway-form"
	flagAuthorino = "authorino-service"
)

// Register adds the flags to a set. audience is assumed where none is given; none is where it is "".
func (f *Flags) Register(flags *pflag.FlagSet, audience string) {
	s := &f.settings
	var audiences []string
	if audience != "" {
		audiences = []string{audience}
	}
	flags.StringVar(&s.Profile, flagProfile, plan.ProfileMCPGateway, "`NAME` of the profile: which MCP headers can be believed: "+plan.ProfileMCPGateway+" or "+plan.ProfileGeneric)
	flags.BoolVar(&s.AllowProtocol2026, flagProtocol, false, "believe the headers of MCP protocol "+plan.Version2026+" too; only where every MCP server is registered with a prefix")
	flags.StringToStringVar(&f.headers, flagHeader, nil, "other `NAMES` of the MCP headers: method=…,tool=…,prompt=…,resource=…,server=…")
	flags.Lookup(flagHeader).DefValue = "" // else the help says (default [])
	flags.StringVar(&s.TrustDomain, flagTrust, "", "SPIFFE trust `DOMAIN` in which ServiceAccounts have IDs of the form spiffe://DOMAIN/ns/…/sa/…")
	flags.StringArrayVar(&s.Audiences, FlagAudience, audiences, "`AUDIENCE` that the agents' tokens are made for; can be repeated")
	flags.StringVar(&s.Verify, flagVerify, kuadrant.VerifyTokenReview, "`WAY`: how Authorino verifies tokens: "+kuadrant.VerifyTokenReview+" or "+kuadrant.VerifyJWT)
	flags.StringVar(&s.Issuer, FlagIssuer, "", "`URL` of the cluster's token issuer, for --"+flagVerify+" "+kuadrant.VerifyJWT)
	flags.StringVar(&s.SPIFFEFrom, flagSPIFFE, kuadrant.SPIFFEFromPeer, "`SOURCE`: where SPIFFE IDs come from: "+kuadrant.SPIFFEFromPeer+", or "+kuadrant.SPIFFEFromXFCC+" behind a gateway that sanitises x-forwarded-client-cert")
	flags.StringVar(&s.Strategy, flagStrategy, kuadrant.StrategyAtomic, "`STRATEGY` of the AuthPolicy's overrides: "+kuadrant.StrategyAtomic+" or "+kuadrant.StrategyMerge)
	flags.IntVar(&s.MaxNamedEvaluators, flagEvaluator, kuadrant.DefaultMaxNamedEvaluators, "`NUMBER` of policies that get an Authorino evaluator of their own")
	flags.StringVar(&s.EnvoyGatewayForm, flagForm, envoygateway.FormNative, "`FORM` of Envoy Gateway's SecurityPolicies on Gateways that are not annotated with "+envoygateway.AnnotationForm+
		": "+envoygateway.FormNative+" (Envoy enforces by itself) or "+envoygateway.FormExtAuth+" (Envoy asks Authorino)")
	flags.StringVar(&s.AuthorinoService, flagAuthorino, "", "where SecurityPolicies of the form "+envoygateway.FormExtAuth+" ask: `NAMESPACE/NAME:PORT` of Authorino's gRPC service")
}

// Options returns the settings of a file (empty where there is none) with the flags that were given in their place. An error
// names the flag or setting that cannot be used.
func (f *Flags) Options(flags *pflag.FlagSet, file requests.Settings) (translator.Options, error) {
	given := f.settings
	for flag, set := range map[string]func(){
		flagProfile:   func() { file.Profile = given.Profile },
		flagProtocol:  func() { file.AllowProtocol2026 = given.AllowProtocol2026 },
		flagTrust:     func() { file.TrustDomain = given.TrustDomain },
		FlagAudience:  func() { file.Audiences = given.Audiences },
		flagVerify:    func() { file.Verify = given.Verify },
		FlagIssuer:    func() { file.Issuer = given.Issuer },
		flagSPIFFE:    func() { file.SPIFFEFrom = given.SPIFFEFrom },
		flagStrategy:  func() { file.Strategy = given.Strategy },
		flagEvaluator: func() { file.MaxNamedEvaluators = given.MaxNamedEvaluators },
		flagForm:      func() { file.EnvoyGatewayForm = given.EnvoyGatewayForm },
		flagAuthorino: func() { file.AuthorinoService = given.AuthorinoService },
	} {
		if flags.Changed(flag) {
			set()
		}
	}
	if file.EnvoyGatewayForm == envoygateway.FormExtAuth && file.AuthorinoService == "" {
		return translator.Options{}, fmt.Errorf("--%s %s needs --%s", flagForm, envoygateway.FormExtAuth, flagAuthorino)
	}
	if flags.Changed(flagEvaluator) && given.MaxNamedEvaluators < 1 {
		return translator.Options{}, fmt.Errorf("--%s is %d; at least 1 is needed", flagEvaluator, given.MaxNamedEvaluators)
	}
	opts, err := file.Options()
	if err != nil {
		return opts, err
	}
	return opts, f.rename(&opts.Profile)
}

// rename gives the profile's headers other names. It adds none: a header that the router never sets is the client's.
func (f *Flags) rename(p *plan.Profile) error {
	fields := map[string]*string{"method": &p.MethodHeader, "tool": &p.ToolHeader, "prompt": &p.PromptHeader, "resource": &p.ResourceHeader, "server": &p.ServerHeader}
	for _, key := range slices.Sorted(maps.Keys(f.headers)) {
		field, name := fields[key], strings.ToLower(f.headers[key])
		switch {
		case field == nil:
			return fmt.Errorf("--%s: %q is not known; there are %s", flagHeader, key, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		case *field == "":
			return fmt.Errorf("--%s: the profile %s has no header for %s", flagHeader, p.Name, key)
		case !cel.ValidHeaderName(name):
			return fmt.Errorf("--%s: %q is not a header name", flagHeader, f.headers[key])
		}
		*field = name
	}
	return nil
}
