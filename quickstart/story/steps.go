package story

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
)

// step is a part of the story.
type step struct {
	title string
	run   func(*World, *Outcome)
	// only names the one enforcer that it is about, "" if it is about either.
	only string
}

var steps = []step{
	{title: "No policy: the Gateway is as its owner left it, and everybody can call everything", run: open},
	{title: "Two teams apply their policies", run: twoTeams},
	{title: "What kubectl shows", run: status},
	{title: "Team B edits its policy: get-tiny-image instead of echo", run: edit},
	{title: "Policies that are hostile or malformed", run: hostile},
	{title: "The owner of a route attaches policies of their own", run: routeOwner},
	{title: "The operator is killed, and started again", run: killed},
	{title: "A workload signs in with a client certificate", run: certificate},
	{title: "The same with nothing but the header in which a gateway forwards the certificate", run: forwarded, only: translator.EnforcerKuadrant},
	{title: "The last policy goes", run: lastPolicy},
}

// Tell runs the story and prints it. It returns what each step saw.
func Tell(w *World, printer *Printer) []*Outcome {
	w.t.Helper()

	var out []*Outcome

	for _, step := range w.steps {
		if step.only != "" && step.only != w.enforcer {
			continue
		}

		o := &Outcome{Title: step.title, printer: printer}
		printer.Step(len(out)+1, step.title)
		step.run(w, o)
		w.envoyTakesAll()
		printer.Took()

		out = append(out, o)
	}

	return out
}

// What the policies in quickstart/policies allow.
const (
	baseProtocol = "initialize tools/list "
	ofTeamA      = baseProtocol + "add echo get-sum prompts/get"
	ofTeamB      = baseProtocol + "subtract echo"
	ofTeamBAfter = baseProtocol + "subtract get-tiny-image"
	nothing      = ""
)

func open(w *World, o *Outcome) {
	v := w.verdicts(o, calls, expected{caller: nobody, allowed: everything}, expected{caller: teamA, allowed: everything})
	for _, label := range []string{"add", "echo", "get-tiny-image", "delete_database"} {
		o.say("%s gives %q", label, v.Cell(nobody, label).Result)
	}
}

func twoTeams(w *World, o *Outcome) {
	begin := time.Now()
	w.apply("team-a.yaml")
	w.apply("team-b.yaml")
	o.say("applied policies/team-a.yaml and policies/team-b.yaml")
	w.programmed("team-a", "team-b")
	o.say("Programmed after %.1f s", time.Since(begin).Seconds())
	w.settled(stranger, "delete_database", false)
	w.verdicts(o, calls, w.teams(ofTeamB)...)
	o.say("without a token, get one: kubectl create token agent -n team-a --audience=%s", audience)
}

// teams is what everybody may do while the two policies hold. Envoy answers a token for
// another audience with a 403, Authorino with a 401.
func (w *World) teams(teamBMay string) []expected {
	otherAudience := http.StatusUnauthorized
	if w.enforcer == translator.EnforcerEnvoyGateway {
		otherAudience = http.StatusForbidden
	}

	return []expected{
		{teamA, ofTeamA, http.StatusForbidden},
		{cheat, ofTeamA, http.StatusForbidden},
		{teamB, teamBMay, http.StatusForbidden},
		{stranger, nothing, http.StatusForbidden},
		{misled, nothing, otherAudience},
		{nobody, nothing, http.StatusUnauthorized},
	}
}

func status(w *World, o *Outcome) {
	table, err := w.Table(context.Background(), namespace)
	if err != nil {
		w.t.Fatal(err)
	}

	o.say("$ kubectl get xaccesspolicies -n %s\n%s", namespace, text(table))
	o.check(len(table.Rows) == 2, "the table has %d rows, not two", len(table.Rows))

	for _, name := range []string{"team-a", "team-b"} {
		for _, kind := range []string{v1alpha1.PolicyConditionAccepted, v1alpha1.PolicyConditionProgrammed} {
			condition, err := w.condition(context.Background(), name, kind)
			if err != nil {
				w.t.Fatal(err)
			}

			o.say("%s: %s", name, sentence(condition))
			o.check(condition.Status == metav1.ConditionTrue, "%s of %s is %s", kind, name, condition.Status)
		}
	}
}

func sentence(c *metav1.Condition) string {
	return fmt.Sprintf("%s=%s, %s: %s", c.Type, c.Status, c.Reason, c.Message)
}

// text is a table as kubectl prints it.
func text(table *metav1.Table) string {
	var out strings.Builder

	writer := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)

	for i, column := range table.ColumnDefinitions {
		cell(writer, i, strings.ToUpper(column.Name))
	}

	fmt.Fprintln(writer)

	for _, row := range table.Rows {
		for i, value := range row.Cells {
			cell(writer, i, value)
		}

		fmt.Fprintln(writer)
	}

	_ = writer.Flush() // to memory

	return strings.TrimSuffix(out.String(), "\n")
}

func cell(to io.Writer, column int, value any) {
	if column > 0 {
		fmt.Fprint(to, "\t")
	}

	fmt.Fprint(to, value)
}

func edit(w *World, o *Outcome) {
	w.apply("team-b-edited.yaml")

	begin := time.Now()
	w.settled(teamB, "get-tiny-image", true)
	w.settled(teamB, "echo", false)
	o.say("applied policies/team-b-edited.yaml; it holds after %.1f s", time.Since(begin).Seconds())
	w.verdicts(o, labelled("subtract", "echo", "get-tiny-image", "delete_database"), w.teams(ofTeamBAfter)...)
}

func hostile(w *World, o *Outcome) {
	err := w.refused("malformed.yaml")
	o.check(apierrors.IsInvalid(err), "policies/malformed.yaml is stored: %v", err)
	o.say("policies/malformed.yaml: the API server says: %v", err)

	w.apply("hostile-expression.yaml")
	o.say("policies/hostile-expression.yaml: %s", sentence(w.reported("hostile-expression", v1alpha1.PolicyConditionAccepted, v1alpha1.PolicyReasonInvalidCEL)))
	w.apply("hostile-name.yaml")
	o.say("policies/hostile-name.yaml: %s", sentence(w.reported("hostile-name", v1alpha1.PolicyConditionProgrammed, v1alpha1.PolicyReasonProgrammed)))

	// By now every rule of the three that could be in force is.
	w.verdicts(o, calls, w.teams(ofTeamBAfter)...)
	w.remove(policy("hostile-expression"))
	w.remove(policy("hostile-name"))
}

// route is the one of somebody else; the others are policies of theirs.
const (
	route                = "images"
	routesPolicy         = "let-everybody-in"
	routesSecurityPolicy = "images-cors"
)

func routeOwner(w *World, o *Outcome) {
	w.apply("route.yaml")

	displacing, kind, name := "route-securitypolicy.yaml", "SecurityPolicy", routesSecurityPolicy
	if w.enforcer == translator.EnforcerKuadrant {
		displacing, kind, name = "route-extensionpolicy.yaml", "EnvoyExtensionPolicy", "images-router"
		overridden(w, o)
	}

	w.apply(displacing)

	lacking := w.displaced("team-a")
	o.say("their policies/%s: team-a: %s", displacing, sentence(lacking))
	o.check(strings.Contains(lacking.Message, kind+" "+namespace+"/"+name), "the winner is not named")
	o.check(strings.Contains(lacking.Message, "HTTPRoute "+namespace+"/"+route), "the route is not named")

	w.remove(stack.Object("gateway.envoyproxy.io/v1alpha1", kind, namespace, name, nil))
	w.programmed("team-a", "team-b")
	o.say("it is deleted: team-a is Programmed again")
}

// displaced waits until a policy is reported as displaced on a route and nothing else is
// said of it: while the new route is worked on, that is said besides.
func (w *World) displaced(name string) *metav1.Condition {
	w.t.Helper()

	var last *metav1.Condition

	stack.Eventually(w.t, settles, fmt.Sprintf("policy %s is reported as displaced", name), func(ctx context.Context) error {
		condition, err := w.condition(ctx, name, v1alpha1.PolicyConditionProgrammed)
		if err != nil {
			return err
		}

		last = condition

		return unmet(condition.Reason == v1alpha1.PolicyReasonPartiallyOverridden && strings.HasSuffix(condition.Message, cure), "%s", sentence(condition))
	})

	return last
}

// cure is the end of the sentence about a policy without mergeType.
const cure = "set mergeType: StrategicMerge in it"

// overridden has the owner of the route try to let everybody in.
func overridden(w *World, o *Outcome) {
	w.apply("route-authpolicy.yaml")

	theirs := stack.Object("kuadrant.io/v1", "AuthPolicy", namespace, routesPolicy, nil)
	stack.Eventually(w.t, settles, "Kuadrant reports the route's AuthPolicy as overridden", func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(theirs), theirs); err != nil {
			return err
		}

		err := stack.Condition(theirs, "Enforced")

		return unmet(err != nil && strings.Contains(err.Error(), "Overridden"), "it is not: %v", err)
	})
	o.say("their policies/route-authpolicy.yaml, which would let everybody in: %v", stack.Condition(theirs, "Enforced"))
	w.remove(theirs)
	w.programmed("team-a", "team-b") // Kuadrant has got over the new route
}

// written are the kinds that the operator writes, and what comes of them.
func (w *World) written() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{v1alpha1.GroupVersion.WithKind("XAccessPolicyList")}
	if w.enforcer == translator.EnforcerEnvoyGateway {
		return append(kinds, schema.GroupVersionKind{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "SecurityPolicyList"})
	}

	return append(kinds, schema.GroupVersionKind{Group: "kuadrant.io", Version: "v1", Kind: "AuthPolicyList"},
		schema.GroupVersionKind{Group: "authorino.kuadrant.io", Version: "v1beta3", Kind: "AuthConfigList"})
}

// calm is how long the operator is watched after its start.
const calm = 3 * time.Second

func killed(w *World, o *Outcome) {
	before := w.versions()
	// What the step before has changed may still go on its way.
	stack.Eventually(w.t, settles, "nobody writes any more", func(context.Context) error {
		time.Sleep(calm)

		last := before
		before = w.versions()

		return unmet(maps.Equal(last, before), "objects are written: %v, then %v", last, before)
	})

	w.operator.Kill(w.t)
	o.say("killed; the policies stay in force:")
	w.verdicts(o, labelled("add", "subtract", "get-tiny-image", "delete_database"), w.teams(ofTeamBAfter)...)

	w.operator.Start(w.t)
	w.lookedAtPolicies()
	time.Sleep(calm)

	after := w.versions()
	o.check(maps.Equal(before, after), "objects were written: %v, then %v", before, after)
	o.say("started again; %d s after it has looked at the policies, the resourceVersions of these are what they were: %s",
		int(calm.Seconds()), strings.Join(slices.Sorted(maps.Keys(shortened(after))), ", "))
}

// lookedAtPolicies waits until the operator counts the policies in its metrics, which it
// does when it has worked on them. Before that it waits for the lease of the one that was
// killed.
func (w *World) lookedAtPolicies() {
	w.t.Helper()

	local, ok := w.operator.(*stack.Operator)
	if !ok {
		return // deployed.Start has waited for the lease; the metrics cannot be reached from here
	}

	counted := fmt.Sprintf("accesspolicy_policies{gateway=%q,namespace=%q} 2\n", gateway, namespace)
	stack.Eventually(w.t, settles, "the operator looks at the policies", func(ctx context.Context) error {
		text, err := local.Scrape(ctx)
		if err != nil {
			return err
		}

		return unmet(strings.Contains(text, counted), "it has not counted them yet")
	})
}

func (w *World) versions() map[string]string {
	w.t.Helper()

	versions, err := w.Versions(context.Background(), w.written()...)
	if err != nil {
		w.t.Fatal(err)
	}

	return versions
}

// shortened cuts the names of AuthConfigs, which are hashes.
func shortened(versions map[string]string) map[string]string {
	out := map[string]string{}
	for name, version := range versions {
		out[name[:min(len(name), 48)]] = version
	}

	return out
}

// workloads is what everybody may do while policies/spiffe.yaml holds as well. Its rule
// without a source makes a caller that proves nothing an anonymous one, who gets a 403
// and not a 401.
func workloads() []expected {
	return []expected{
		{workload, baseProtocol + "add", http.StatusForbidden},
		{impostor, "initialize", http.StatusForbidden},
		{forger, "initialize", http.StatusForbidden},
		{nobody, "initialize", http.StatusForbidden},
		{teamA, ofTeamA, http.StatusForbidden},
	}
}

func certificate(w *World, o *Outcome) {
	w.apply("spiffe.yaml")
	w.programmed("workload")
	w.settled(workload, "add", true)

	how := "Envoy compares what the certificate of the connection says"
	if w.enforcer == translator.EnforcerKuadrant {
		how = "Envoy tells Authorino what the certificate of the connection says (source.principal)"
	}

	o.say("applied policies/spiffe.yaml; %s", how)
	w.verdicts(o, labelled("initialize", "tools/list", "add", "echo", "delete_database"), workloads()...)
}

func forwarded(w *World, o *Outcome) {
	w.startPolicyOperator("--spiffe-from=xfcc")

	ours := stack.Object("kuadrant.io/v1", "AuthPolicy", namespace, gateway+"-auth", nil)
	stack.Eventually(w.t, settles, "the AuthPolicy reads the header", func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(ours), ours); err != nil {
			return err
		}

		text, err := ours.MarshalJSON()
		if err != nil {
			return err
		}

		return unmet(strings.Contains(string(text), "x-forwarded-client-cert") && !strings.Contains(string(text), "source.principal"), "it does not")
	})
	w.programmed("team-a", "team-b", "workload")
	w.settled(workload, "add", true)
	o.say("the operator runs with --spiffe-from=xfcc; the rules do not look at source.principal any more")
	w.verdicts(o, labelled("initialize", "tools/list", "add", "echo", "delete_database"), workloads()...)
}

func lastPolicy(w *World, o *Outcome) {
	w.removePolicies()

	took := w.settled(nobody, "delete_database", true)
	o.say("deleted; after %.1f s the Gateway is open again:", took.Seconds())
	w.verdicts(o, labelled("add", "delete_database"), expected{caller: nobody, allowed: everything}, expected{caller: teamA, allowed: everything})

	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, translator.AnnotationDefaultDeny)
	if err := w.Client.Patch(context.Background(), stack.Gateway(namespace, gateway), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		w.t.Fatal(err)
	}

	took = w.settled(nobody, "delete_database", false)
	o.say("the Gateway is annotated with %s: \"true\"; after %.1f s it is closed:", translator.AnnotationDefaultDeny, took.Seconds())
	w.verdicts(o, labelled("add", "delete_database"), expected{nobody, nothing, http.StatusForbidden}, expected{teamA, nothing, http.StatusForbidden})
}
