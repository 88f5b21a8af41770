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
	// EnvoyGatewayForm is the form of Envoy Gateway's policies, AuthorinoService where it asks: NAMESPACE/NAME:PORT.
	EnvoyGatewayForm string `json:"envoyGatewayForm,omitempty"`
	AuthorinoService string `json:"authorinoService,omitempty"`
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
	authorino, err := envoygateway.ParseService(s.AuthorinoService)
	if err != nil {
		return translator.Options{}, err
	}
	opts := translator.Options{EnvoyGateway: envoygateway.Options{Audiences: audiences, Issuer: s.Issuer, Form: s.EnvoyGatewayForm, Authorino: authorino},
		Profile: profile, TrustDomain: s.TrustDomain, Kuadrant: kuadrant.Options{Strategy: s.Strategy, Audiences: audiences,
			Verify: s.Verify, Issuer: s.Issuer, SPIFFEFrom: s.SPIFFEFrom, MaxNamedEvaluators: s.MaxNamedEvaluators}}
	return opts, opts.Validate()
}
