package main

import (
	"fmt"
	"slices"
	"strings"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"github.com/spf13/cobra"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/owned"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// translation is the input of a verb and what the translator made of it.
type translation struct {
	set    *manifest.Set
	opts   translator.Options
	result *translator.Result
	faults []diagnostic
}

// translation reads what -f names and translates it. adjust may change the options.
func (a *app) translation(cmd *cobra.Command, adjust func(*translator.Options) error) (*translation, error) {
	opts, err := a.config.Options(cmd.Flags(), requests.Settings{})
	if err != nil {
		return nil, usage("%s", err)
	}
	if err := adjust(&opts); err != nil {
		return nil, err
	}
	if len(a.files) == 0 {
		return nil, usage("nothing to read; name a file or folder with -f, or - for stdin")
	}
	l := newLoader(a.stdin)
	if err := l.addAll(a.files); err != nil {
		return nil, err
	}
	l.set.AssumeGateways()
	dropOwn(&l.set)
	a.notes(l.set.Notes)
	if len(l.set.Policies) == 0 {
		return nil, fmt.Errorf("there is no XAccessPolicy in %s", strings.Join(a.files, ", "))
	}
	return translate(l, opts)
}

func translate(l *loader, opts translator.Options) (*translation, error) {
	set := &l.set
	result, err := translator.Translate(set.Input(), opts)
	if err != nil {
		return nil, err
	}
	return &translation{set: set, opts: opts, result: result, faults: diagnose(l, result)}, nil
}

// dropOwn takes earlier output of ours out of the input. In files a Gateway has no UID, which is how a cluster tells ours
// from other people's, and our own object would otherwise count as one that must not be displaced.
func dropOwn(set *manifest.Set) {
	set.AuthPolicies = slices.DeleteFunc(set.AuthPolicies, func(ap kuadrantv1.AuthPolicy) bool {
		own := ap.Labels[owned.LabelManagedBy] == owned.ManagedBy && ap.Spec.TargetRef.Kind == "Gateway" &&
			slices.ContainsFunc(set.Gateways, func(gw gwv1.Gateway) bool {
				return gw.Namespace == ap.Namespace && gw.Name == string(ap.Spec.TargetRef.Name) && gw.UID == ""
			})
		if own {
			set.Notes = append(set.Notes, fmt.Sprintf("AuthPolicy %s/%s carries our label; it is taken for earlier output and not looked at", ap.Namespace, ap.Name))
		}
		return own
	})
}

// asConfigured is for verbs that look at the plan alone.
func asConfigured(*translator.Options) error { return nil }

// usesTokens reports whether some plan looks at ServiceAccount tokens, and so at their audience.
func (t *translation) usesTokens() bool {
	return slices.ContainsFunc(t.result.Gateways, func(gw translator.GatewayResult) bool {
		return slices.ContainsFunc(gw.Plans, func(p plan.Plan) bool { return p.Identities().Token })
	})
}
