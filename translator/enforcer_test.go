package translator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator"
)

func TestChoose(t *testing.T) {
	kuadrant, envoy := translator.Enforcers{Kuadrant: true}, translator.Enforcers{EnvoyGateway: true}
	both, none := translator.Enforcers{Kuadrant: true, EnvoyGateway: true}, translator.Enforcers{}
	for name, c := range map[string]struct {
		annotation, byDefault string
		installed, emitted    translator.Enforcers
		foreign               bool // a Gateway that Envoy Gateway does not look after
		want                  translator.Enforcers
		problem               string
	}{
		"auto takes Kuadrant where it is installed":         {byDefault: "auto", installed: both, want: kuadrant},
		"else Envoy Gateway":                                {byDefault: "auto", installed: envoy, want: envoy},
		"on its own Gateways":                               {byDefault: "auto", installed: envoy, foreign: true, want: none},
		"auto does not leave an enforcer by itself":         {byDefault: "auto", installed: both, emitted: envoy, want: envoy},
		"nor one of both":                                   {byDefault: "auto", installed: both, emitted: both, want: both},
		"the annotation wins":                               {annotation: "envoy-gateway", byDefault: "kuadrant", installed: both, want: envoy},
		"both":                                              {annotation: "both", byDefault: "auto", installed: both, want: both},
		"both, and one is not installed":                    {annotation: "both", byDefault: "auto", installed: kuadrant, want: kuadrant, problem: "not installed"},
		"an unknown value keeps what was emitted":           {annotation: "none", byDefault: "kuadrant", installed: both, emitted: envoy, want: envoy, problem: `"none"`},
		"and is the default where nothing was":              {annotation: "Kuadrant", byDefault: "envoy-gateway", installed: both, want: envoy, problem: `"Kuadrant"`},
		"an empty value is unknown":                         {annotation: " ", byDefault: "auto", installed: both, want: kuadrant, problem: "annotation"},
		"Envoy Gateway for somebody else's Gateway is none": {annotation: "envoy-gateway", byDefault: "auto", installed: both, foreign: true, want: none, problem: "class"},
	} {
		s := translator.Situation{Default: c.byDefault, Installed: c.installed, Emitted: c.emitted, OfEnvoyGateway: !c.foreign}
		if c.annotation != "" {
			s.Annotation = &c.annotation
		}
		got, problem := translator.Choose(s)
		require.Equal(t, c.want, got, name)
		if c.problem == "" {
			require.Empty(t, problem, name)
		} else {
			require.Contains(t, problem, c.problem, name)
		}
	}
}
