package requests

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
)

// DefaultAudience is the token audience that previews and tests assume when none is named.
const DefaultAudience = "mcp-gateway"

// Settings is options.yaml beside a request file: the configuration under which the file holds.
type Settings struct {
	Profile            string   `json:"profile,omitempty"`
	AllowProtocol2026  bool     `json:"allowProtocol2026,omitempty"`
	TrustDomain        string   `json:"trustDomain,omitempty"`
	Audiences          []string `json:"audiences,omitempty"`
	SPIFFEFrom         string   `json:"spiffeFrom,omitempty"`
	Strategy           string   `json:"strategy,omitempty"`
	Verify             string   `json:"verify,omitempty"`
	Issuer             string   `json:"issuer,omitempty"`
	MaxNamedEvaluators int      `json:"maxNamedEvaluators,omitempty"`
	// Enforcer is kuadrant (also for ""), envoy-gateway or both.
	Enforcer string `json:"enforcer,omitempty"`
	// JWKS are the keys of Issuer as a JSON Web Key Set, which only Envoy Gateway needs.
	JWKS string `json:"jwks,omitempty"`
}

func (s Settings) enforcers() (translator.Enforcers, error) {
	switch s.Enforcer {
	case "", translator.EnforcerKuadrant:
		return translator.Enforcers{Kuadrant: true}, nil
	case translator.EnforcerEnvoyGateway:
		return translator.Enforcers{EnvoyGateway: true}, nil
	case translator.EnforcerBoth:
		return translator.Enforcers{Kuadrant: true, EnvoyGateway: true}, nil
	}
	return translator.Enforcers{}, fmt.Errorf("enforcer %q: use %s, %s or %s", s.Enforcer, translator.EnforcerKuadrant, translator.EnforcerEnvoyGateway, translator.EnforcerBoth)
}

// ParseSettings reads options.yaml; no data gives the defaults.
func ParseSettings(data []byte) (Settings, error) {
	var s Settings
	err := yaml.UnmarshalStrict(data, &s)
	return s, err
}

// Options turns the settings into the translator's options.
func (s Settings) Options() (translator.Options, error) {
	name := s.Profile
	if name == "" {
		name = plan.ProfileMCPGateway
	}
	profile, ok := plan.ProfileNamed(name)
	if !ok {
		return translator.Options{}, fmt.Errorf("profile %q is not known; use %s or %s", name, plan.ProfileMCPGateway, plan.ProfileGeneric)
	}
	if s.AllowProtocol2026 {
		profile = profile.WithVersion(plan.Version2026)
	}
	audiences := s.Audiences
	if len(audiences) == 0 {
		audiences = []string{DefaultAudience}
	}
	enforcers, err := s.enforcers()
	if err != nil {
		return translator.Options{}, err
	}
	opts := translator.Options{Enforcers: enforcers, EnvoyGateway: envoygateway.Options{Audiences: audiences, Issuer: s.Issuer, JWKS: s.JWKS},
		Profile: profile, TrustDomain: s.TrustDomain, Kuadrant: kuadrant.Options{Strategy: s.Strategy, Audiences: audiences,
			Verify: s.Verify, Issuer: s.Issuer, SPIFFEFrom: s.SPIFFEFrom, MaxNamedEvaluators: s.MaxNamedEvaluators}}
	return opts, opts.Validate()
}
