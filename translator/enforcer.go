package translator

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
)

// Enforcers says which enforcers work. With both, each must allow a request.
type Enforcers struct{ Kuadrant, EnvoyGateway bool }

// None reports that nothing enforces.
func (e Enforcers) None() bool { return e == Enforcers{} }

// String names them, for messages.
func (e Enforcers) String() string {
	var names []string
	if e.Kuadrant {
		names = append(names, kuadrant.Enforcer)
	}
	if e.EnvoyGateway {
		names = append(names, envoygateway.Enforcer)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " and ")
}

// Values of AnnotationEnforcer and of the default that stands behind it.
const (
	// EnforcerAuto is what was used before, else Kuadrant where it is installed, else Envoy Gateway on its own Gateways.
	EnforcerAuto         = "auto"
	EnforcerKuadrant     = kuadrant.Enforcer
	EnforcerEnvoyGateway = envoygateway.Enforcer
	EnforcerBoth         = "both"
)

// EnforcerNames are the values, in the order of the documentation.
func EnforcerNames() []string {
	return []string{EnforcerAuto, EnforcerKuadrant, EnforcerEnvoyGateway, EnforcerBoth}
}

// AnnotationEnforcer on a Gateway chooses what enforces its policies.
const AnnotationEnforcer = "accesspolicy-operator/enforcer"

// Situation is what the choice of enforcers for a Gateway depends on.
type Situation struct {
	// Annotation is the value of AnnotationEnforcer; nil where the Gateway does not have it.
	Annotation *string
	// Default is the operator's own setting.
	Default string
	// Installed says whose kinds the API server serves.
	Installed Enforcers
	// OfEnvoyGateway is set for a Gateway whose class Envoy Gateway looks after; no other can have a SecurityPolicy.
	OfEnvoyGateway bool
	// Emitted are the enforcers that have objects of ours for this Gateway.
	Emitted Enforcers
}

// Choose returns what enforces the policies of a Gateway, and what is wrong with the wish, "" for nothing. There is no value
// for none; a value that is not known leaves what was emitted before; and auto never leaves an enforcer by itself, since
// taking rules away is a decision for somebody who knows why they were there.
func Choose(s Situation) (Enforcers, string) {
	wish, problem := s.Default, ""
	if s.Annotation != nil {
		wish = *s.Annotation
	}
	if !slices.Contains(EnforcerNames(), wish) {
		problem = fmt.Sprintf("the annotation %s has the value %s, and %s are known; what enforces the policies stays as it is",
			AnnotationEnforcer, shorten(wish), strings.Join(EnforcerNames(), ", "))
		wish = s.Default
		if !s.Emitted.None() {
			wish = EnforcerAuto
		}
	}
	chosen := Enforcers{Kuadrant: wish == EnforcerKuadrant || wish == EnforcerBoth, EnvoyGateway: wish == EnforcerEnvoyGateway || wish == EnforcerBoth}
	if wish == EnforcerAuto {
		chosen = automatic(s)
	}
	if chosen.EnvoyGateway && !s.OfEnvoyGateway {
		problem = joined(problem, "Envoy Gateway does not look after this Gateway's class, so a SecurityPolicy would have no effect on it; use "+EnforcerKuadrant)
		chosen.EnvoyGateway = false
	}
	if chosen.EnvoyGateway && !s.Installed.EnvoyGateway {
		problem = joined(problem, "Envoy Gateway's SecurityPolicy is not installed; install Envoy Gateway")
		chosen.EnvoyGateway = false
	}
	if chosen.Kuadrant && !s.Installed.Kuadrant {
		problem = joined(problem, "Kuadrant's AuthPolicy is not installed; install Kuadrant")
		chosen.Kuadrant = false
	}
	return chosen, problem
}

func automatic(s Situation) Enforcers {
	usable := Enforcers{Kuadrant: s.Installed.Kuadrant, EnvoyGateway: s.Installed.EnvoyGateway && s.OfEnvoyGateway}
	if before := (Enforcers{Kuadrant: s.Emitted.Kuadrant && usable.Kuadrant, EnvoyGateway: s.Emitted.EnvoyGateway && usable.EnvoyGateway}); !before.None() {
		return before
	}
	return Enforcers{Kuadrant: usable.Kuadrant, EnvoyGateway: !usable.Kuadrant && usable.EnvoyGateway}
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func enforcersOf(gateway types.NamespacedName, in Input, opts Options) Enforcers {
	if e, ok := in.Enforcers[gateway]; ok {
		return e
	}
	if opts.Enforcers.None() {
		return Enforcers{Kuadrant: true}
	}
	return opts.Enforcers
}
