package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/requests"
)

const (
	flagEnforcer = "enforcer"
	flagJWKS     = "jwks"

	againstHelp = "`NAME`: plan (what the policies say), or what the generated objects express: kuadrant or envoy-gateway"
)

// against are the values of --enforcer of the verbs that decide calls.
func against() []string {
	return []string{string(requests.AgainstPlan), string(requests.AgainstKuadrant), string(requests.AgainstEnvoyGateway)}
}

// decideFor makes the objects of the enforcer that calls are decided by. Tokens are taken as verified, so keys that are not
// known here make no difference.
func decideFor(opts *translator.Options, against requests.Against) {
	opts.Enforcers = against.Enforcers()
	if opts.EnvoyGateway.JWKS == "" {
		opts.EnvoyGateway.JWKS = `{"keys":[{}]}`
	}
	if opts.EnvoyGateway.Issuer == "" {
		opts.EnvoyGateway.Issuer = "https://issuer.invalid"
	}
}

// emission is what translate writes objects for.
type emission struct{ enforcer, jwks string }

func (e *emission) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.enforcer, flagEnforcer, translator.EnforcerKuadrant, fmt.Sprintf("`NAME`: %s (AuthPolicies), %s (SecurityPolicies) or %s",
		translator.EnforcerKuadrant, translator.EnforcerEnvoyGateway, translator.EnforcerBoth))
	cmd.Flags().StringVar(&e.jwks, flagJWKS, "", "`FILE` with the keys of the token issuer (kubectl get --raw /openid/v1/jwks), which SecurityPolicies hold")
}

// set changes the options to what the flags say.
func (e *emission) set(opts *translator.Options) error {
	if err := oneOf(flagEnforcer, e.enforcer, translator.EnforcerKuadrant, translator.EnforcerEnvoyGateway, translator.EnforcerBoth); err != nil {
		return err
	}
	opts.Enforcers = translator.Enforcers{Kuadrant: e.enforcer != translator.EnforcerEnvoyGateway, EnvoyGateway: e.enforcer != translator.EnforcerKuadrant}
	if e.jwks == "" {
		return nil
	}
	keys, err := os.ReadFile(e.jwks)
	if err != nil {
		return plainError(err)
	}
	opts.EnvoyGateway.JWKS = string(keys)
	if err := opts.Validate(); err != nil {
		return usage("--%s %s: %s", flagJWKS, e.jwks, err)
	}
	return nil
}
