package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/coverage"
	"accesspolicy-operator/translator/owned"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

func (a *app) coverageCommand(display string) *cobra.Command {
	var enforcer, output string
	var controllers []string
	var cluster clusterFlags
	cmd := &cobra.Command{
		Use:   "coverage [-f FILE] [route/NAME | gateway/NAME]",
		Short: "Say on which listeners, routes and rules the generated objects really decide, and what displaces them",
		Long: `Say for each listener, route and rule of the Gateways that policies target whether the generated
object decides there, which object displaces it, why, and what to do (docs/coverage.md).

Without -f the cluster of the kubeconfig is asked, about the objects that the operator has written
there. What you may not list in all namespaces is read in that of -n and those that the route leads
to, with a warning: what is not seen displaces nothing. A Gateway that policies target and for which
nothing was written counts as one where the baseline does not hold.

With -f the answer is about what the policies in the files amount to. Beside them and the Gateways it
needs the routes and the SecurityPolicies, EnvoyExtensionPolicies, EnvoyPatchPolicies and AuthPolicies
of everybody, with their creation times, as kubectl get -o yaml gives them. Objects that the operator
wrote tell the age of what it would write; a missing one is the newest.

The answer is computed from specs. route/NAME or route/NAMESPACE/NAME asks about one route (or
httproute/, grpcroute/, tcproute/, tlsroute/, udproute/), gateway/NAME about one Gateway.

` + exitCodes,
		Example: fmt.Sprintf("  %[1]s coverage\n  %[1]s coverage -n demo route/tools\n  %[1]s coverage -f cluster.yaml route/tools\n  %[1]s coverage -f policies/ -f cluster.yaml gateway/demo/prod -o json", display),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(oneOf("output", output, "text", "json", "yaml"), oneOf(flagEnforcer, enforcer, translator.EnforcerNames()...)); err != nil {
				return err
			}
			about, err := subjectOf(args)
			if err != nil {
				return err
			}
			live := len(a.files) == 0
			switch {
			case live && cmd.Flags().Changed(flagEnforcer):
				return usage("--%s is for files; in a cluster the operator has chosen", flagEnforcer)
			case !live && cluster != clusterFlags{}:
				return usage("either files (-f) or a cluster")
			}
			in, missing, refused := (*coverage.Input)(nil), 0, 0
			if live {
				in, missing, err = a.clusterInput(cmd.Context(), &cluster, controllers, &about)
			} else {
				in, refused, err = a.fileInput(cmd, enforcer, controllers)
			}
			if err != nil {
				return err
			}
			return a.coverage(in, about, output, missing, refused)
		},
	}
	cmd.Flags().StringVar(&enforcer, flagEnforcer, translator.EnforcerAuto, "`NAME`: "+strings.Join(translator.EnforcerNames(), ", ")+"; the Gateway's annotation goes before it; with -f only")
	cmd.Flags().StringArrayVar(&controllers, "envoy-gateway-controller", []string{egv1a1.Controller}, "controllerName of GatewayClasses that are an Envoy Gateway's; can be repeated (`NAME`)")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT`: text, json or yaml")
	cluster.register(cmd.Flags())
	return cmd
}

// coverage writes the lines. missing counts the Gateways for which there should be a baseline and is none, refused the policies
// that were refused.
func (a *app) coverage(in *coverage.Input, about subject, output string, missing, refused int) error {
	lines := slices.DeleteFunc(coverage.Compute(*in), func(l coverage.Line) bool { return !about.matches(&l) })
	if len(lines) == 0 && about.kind != "" && missing == 0 {
		return about.absent(in)
	}
	if err := writeLines(a.stdout, lines, output); err != nil {
		return err
	}
	lacking := 0
	for i := range lines {
		if lines[i].Lacking() {
			lacking++
		}
	}
	if lacking > 0 {
		a.say(plan.Error, fmt.Sprintf("the baseline does not hold on %d of %d lines", lacking, len(lines)))
	}
	if lacking+missing > 0 {
		return exitCode(exitDenied)
	}
	if refused > 0 {
		return exitCode(exitRefused)
	}
	return nil
}

// fileInput reads what -f names, once for the translator and once for coverage, which looks at more kinds. It says which
// policies are refused, and returns their number.
func (a *app) fileInput(cmd *cobra.Command, enforcer string, controllers []string) (*coverage.Input, int, error) {
	opts, err := a.config.Options(cmd.Flags(), requests.Settings{})
	if err != nil {
		return nil, 0, usage("%s", err)
	}
	var stdin []byte
	if slices.Contains(a.files, "-") {
		if stdin, err = readBounded(a.stdin); err != nil {
			return nil, 0, fmt.Errorf("stdin: %w", err)
		}
	}
	l := newLoader(bytes.NewReader(stdin))
	if err := l.addAll(a.files); err != nil {
		return nil, 0, err
	}
	in, err := objectsOf(l, stdin)
	if err != nil {
		return nil, 0, err
	}
	in.EnvoyControllers = controllers
	given := len(l.set.Gateways)
	l.set.AssumeGateways()
	for _, gw := range l.set.Gateways[given:] {
		in.Gateways = append(in.Gateways, coverage.Gateway{Gateway: gw})
	}
	a.notes(slices.DeleteFunc(l.set.Notes, lookedAt))
	faults, err := generate(in, l, opts, enforcer)
	if err != nil {
		return nil, 0, err
	}
	in.Baselines = append(in.Baselines, in.Written()...)
	if len(in.Baselines) == 0 {
		return nil, 0, fmt.Errorf("there is no XAccessPolicy for a Gateway in %s, and no object that the operator wrote", strings.Join(a.files, ", "))
	}
	refused := slices.DeleteFunc(faults, func(d diagnostic) bool { return d.Severity != plan.Error }) // the rest is for explain
	a.tell(refused)
	return in, len(refused), nil
}

// generate makes what the policies of the input amount to the baselines of their Gateways.
func generate(in *coverage.Input, l *loader, opts translator.Options, enforcer string) ([]diagnostic, error) {
	if len(l.set.Policies) == 0 {
		return nil, nil
	}
	decideFor(&opts, requests.AgainstPlan) // the keys of an issuer displace nothing
	opts.Enforcers = translator.Enforcers{}
	set := l.set.Input()
	set.Enforcers = map[types.NamespacedName]translator.Enforcers{}
	for i := range l.set.Gateways {
		gw := &l.set.Gateways[i]
		set.Enforcers[types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}] = enforcersOf(in, gw, enforcer)
	}
	withoutOwn(&set)
	result, err := translator.Translate(set, opts)
	if err != nil {
		return nil, err
	}
	for i := range result.Gateways {
		gw := &result.Gateways[i]
		in.Generate(gw.Gateway, gw.EnvoyGateway.Objects, gw.Kuadrant.Objects)
	}
	return diagnose(l, result), nil
}

// enforcersOf is the operator's choice for a Gateway, with what the input shows to be installed. A Gateway whose class is not in
// the input may be anybody's.
func enforcersOf(in *coverage.Input, gw *gwv1.Gateway, wish string) translator.Enforcers {
	s := translator.Situation{Default: wish, OfEnvoyGateway: true}
	if value, set := gw.Annotations[translator.AnnotationEnforcer]; set {
		s.Annotation = &value
	}
	for _, class := range in.Classes {
		if class.Name == string(gw.Spec.GatewayClassName) {
			s.OfEnvoyGateway = in.IsEnvoyGateway(string(class.Spec.ControllerName))
		}
	}
	for _, b := range in.Written() {
		if b.Gateway == (types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}) {
			s.Emitted.Kuadrant = s.Emitted.Kuadrant || b.Auth != nil
			s.Emitted.EnvoyGateway = s.Emitted.EnvoyGateway || b.Security != nil
		}
	}
	envoy := len(in.SecurityPolicies)+len(in.ExtensionPolicies)+len(in.PatchPolicies) > 0
	s.Installed = translator.Enforcers{Kuadrant: wish != translator.EnforcerAuto || len(in.AuthPolicies) > 0 || !envoy || !s.OfEnvoyGateway, EnvoyGateway: true}
	chosen, _ := translator.Choose(s)
	return chosen
}

// withoutOwn takes earlier output of ours out of the translator's input: in files a Gateway has no UID, and it would count as
// somebody else's.
func withoutOwn(set *translator.Input) {
	set.AuthPolicies = slices.DeleteFunc(slices.Clone(set.AuthPolicies), func(ap kuadrantv1.AuthPolicy) bool { return ap.Labels[owned.LabelManagedBy] == owned.ManagedBy })
	set.SecurityPolicies = slices.DeleteFunc(slices.Clone(set.SecurityPolicies), func(sp egv1a1.SecurityPolicy) bool { return sp.Labels[owned.LabelManagedBy] == owned.ManagedBy })
}

// objectsOf reads again what a loader has read.
func objectsOf(l *loader, stdin []byte) (*coverage.Input, error) {
	in := &coverage.Input{}
	files := make([]string, 0, len(l.seen))
	for file := range l.seen {
		files = append(files, file)
	}
	slices.Sort(files)
	for _, file := range files {
		data := stdin
		if file != "-" {
			var err error
			if data, err = readFile(file); err != nil {
				return nil, err
			}
		}
		objects, err := coverage.Documents(data)
		for _, u := range objects {
			err = errors.Join(err, in.Add(u))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return in, nil
}

// lookedAt tells the translator's notes about kinds that it skips from those that matter: coverage looks at them.
func lookedAt(note string) bool {
	return slices.ContainsFunc(coverage.Kinds, func(kind string) bool { return strings.Contains(note, "objects of kind "+kind+" (") })
}

// subject is what is asked about; everything if kind is empty.
type subject struct{ kind, namespace, name string }

func subjectOf(args []string) (subject, error) {
	if len(args) == 0 {
		return subject{}, nil
	}
	kind, name, ok := strings.Cut(args[0], "/")
	s := subject{kind: strings.ToLower(kind), name: name}
	if namespace, rest, both := strings.Cut(name, "/"); both {
		s.namespace, s.name = namespace, rest
	}
	known := s.kind == "gateway" || s.kind == "route" || slices.ContainsFunc(coverage.Kinds, func(k string) bool {
		return strings.ToLower(k) == s.kind && strings.HasSuffix(s.kind, "route")
	})
	switch {
	case len(args) > 1:
		return s, usage("one route or Gateway can be asked about, or all of them")
	case !ok || !known || s.name == "":
		return s, usage("%q is no route/NAME or gateway/NAME; files are given with -f", args[0])
	}
	return s, nil
}

func (s subject) matches(l *coverage.Line) bool {
	named := func(namespace, name string) bool {
		return s.name == name && (s.namespace == "" || s.namespace == namespace)
	}
	switch s.kind {
	case "":
		return true
	case "gateway":
		return named(l.Gateway.Namespace, l.Gateway.Name)
	case "route":
		return named(l.Route.Namespace, l.Route.Name)
	default:
		return strings.ToLower(l.Route.Kind) == s.kind && named(l.Route.Namespace, l.Route.Name)
	}
}

// concerns reports whether an answer about the subject is about a Gateway.
func (s subject) concerns(in *coverage.Input, gateway types.NamespacedName) bool {
	if s.kind == "" || s.kind == "gateway" {
		return s.matches(&coverage.Line{Gateway: gateway})
	}
	return slices.ContainsFunc(in.Routes, func(r coverage.Route) bool {
		return s.matches(&coverage.Line{Route: r.ID()}) && slices.ContainsFunc(r.ParentRefs, func(ref gwv1.ParentReference) bool {
			return (ref.Kind == nil || *ref.Kind == "Gateway") && string(ref.Name) == gateway.Name &&
				(ref.Namespace == nil && r.Namespace == gateway.Namespace || ref.Namespace != nil && string(*ref.Namespace) == gateway.Namespace)
		})
	})
}

// absent explains why there is no line.
func (s subject) absent(in *coverage.Input) error {
	there := slices.ContainsFunc(in.Routes, func(r coverage.Route) bool { return s.matches(&coverage.Line{Route: r.ID()}) }) ||
		slices.ContainsFunc(in.Gateways, func(gw coverage.Gateway) bool {
			return s.matches(&coverage.Line{Gateway: types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}})
		})
	if there {
		return fmt.Errorf("%s/%s is not attached to a Gateway that policies target", s.kind, s.name)
	}
	return fmt.Errorf("%s/%s is not there", s.kind, s.name)
}

// lineView is a line in JSON and YAML.
type lineView struct {
	Gateway     string `json:"gateway"`
	Listener    string `json:"listener,omitempty"`
	ListenerSet string `json:"listenerSet,omitempty"`
	Route       string `json:"route,omitempty"`
	RouteKind   string `json:"routeKind,omitempty"`
	// Rule is left out where the answer is about all of the route.
	Rule        *int   `json:"rule,omitempty"`
	RuleName    string `json:"ruleName,omitempty"`
	Enforcer    string `json:"enforcer"`
	Holds       string `json:"holds"`
	By          string `json:"by,omitempty"`
	DisplacedBy string `json:"displacedBy,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Why         string `json:"why,omitempty"`
	Reported    string `json:"reported,omitempty"`
}

func writeLines(w io.Writer, lines []coverage.Line, output string) error {
	if output == "text" {
		return coverage.Write(w, lines)
	}
	views := make([]lineView, len(lines))
	for i, l := range lines {
		views[i] = lineView{Gateway: l.Gateway.String(), Listener: l.Listener, RouteKind: l.Route.Kind, RuleName: l.RuleName, Enforcer: l.Enforcer,
			Holds: l.Holds(), By: l.By, DisplacedBy: l.DisplacedBy, Reason: l.Reason, Why: l.Why, Reported: l.Reported}
		if l.ListenerSet.Name != "" {
			views[i].ListenerSet = l.ListenerSet.String()
		}
		if l.Route.Name != "" {
			views[i].Route = l.Route.Namespace + "/" + l.Route.Name
		}
		if l.Rule >= 0 {
			views[i].Rule = &l.Rule
		}
	}
	all := map[string]any{"lines": views}
	if output == "json" {
		return writeJSON(w, all)
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
