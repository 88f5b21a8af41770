// Command tour translates a golden case, prints the AuthPolicy that comes out, and asks the real Authorino pipeline what
// it says to the case's requests.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/test/differential"
	"accesspolicy-operator/test/judge"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/requests"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: tour FOLDER (a golden case: in.yaml and requests.yaml)")
		os.Exit(1)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	c, err := requests.LoadCase(os.DirFS(dir))
	if err != nil {
		return err
	}
	result, err := translator.Translate(c.Set.Input(), c.Options)
	if err != nil {
		return err
	}
	gw, err := requests.Gateway(c.File, result)
	if err != nil {
		return err
	}
	fmt.Printf("# The policies in %s, explained\n\n", filepath.Join(dir, "in.yaml"))
	for i := range gw.Plans {
		fmt.Println(gw.Plans[i].String())
	}
	if err := printObjects(gw.Kuadrant); err != nil {
		return err
	}
	return printVerdicts(&c.Set, c.File, gw, c.Options)
}

func printObjects(out kuadrant.Output) error {
	fmt.Printf("# The AuthPolicy for Kuadrant\n\n")
	for _, object := range out.Objects {
		u, err := kuadrant.Unstructured(object)
		if err != nil {
			return err
		}
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return err
		}
		fmt.Println(string(text))
	}
	return nil
}

// printVerdicts asks Authorino. It returns an error when an answer differs from the plan's or from what the case expects,
// so that the demonstration cannot show a lie.
func printVerdicts(set *manifest.Set, file *requests.File, gw *translator.GatewayResult, opts translator.Options) error {
	client, err := judge.Start(context.Background(), "")
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the judge ends with this process in any case
	object, err := gatewayObject(set, gw)
	if err != nil {
		return err
	}
	loaded, err := client.Load("tour", differential.World(object, gw, set.Input(), opts, file.ServiceAccounts()))
	if err != nil {
		return err
	}
	if !loaded.Ready() {
		return fmt.Errorf("Authorino refused the AuthConfig: %+v", loaded.AuthConfigs)
	}
	judged, err := differential.Ask(client, "tour", object, gw, opts, differential.ShapeFor(opts), file.Requests)
	if err != nil {
		return err
	}
	fmt.Printf("# What the real Authorino pipeline says to %d calls\n\n", len(judged))
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CALLER\tCALL\tAUTHORINO\tITS EVALUATOR\tGRANTED BY (plan)")
	wrong := 0
	for _, j := range judged {
		if j.Expressed == nil {
			return fmt.Errorf("%s reaches no route", j.Request.Name)
		}
		if j.Disagreement(true) != "" || j.Real.Allowed != (j.Request.Expect == requests.Allow) {
			wrong++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", caller(j.Request.Caller), call(j.Request), verdict(j.Real), evaluator(j.Real), by(j))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d answers are not what plan and case say", wrong)
	}
	fmt.Printf("\nPlan and Authorino agree on all of them.\n")
	return nil
}

func gatewayObject(set *manifest.Set, gw *translator.GatewayResult) (*gwv1.Gateway, error) {
	for i := range set.Gateways {
		if set.Gateways[i].Namespace == gw.Gateway.Namespace && set.Gateways[i].Name == gw.Gateway.Name {
			return &set.Gateways[i], nil
		}
	}
	return nil, errors.New("the Gateway is not in the input")
}

func caller(c requests.Caller) string {
	var parts []string
	if c.ServiceAccount != "" {
		parts = append(parts, c.ServiceAccount)
	}
	if c.SPIFFE != "" {
		parts = append(parts, c.SPIFFE)
	}
	if c.BadToken {
		parts = append(parts, "(bad token)")
	}
	if len(parts) == 0 {
		return "(anonymous)"
	}
	return strings.Join(parts, " + ")
}

func call(r requests.Request) string {
	if r.MCP == nil {
		method := r.HTTP.Method
		if method == "" {
			method = "POST"
		}
		return method + " without an MCP call"
	}
	return strings.TrimSpace(r.MCP.Method + " " + r.MCP.Name)
}

func verdict(r judge.Result) string {
	if r.Allowed {
		return "allow"
	}
	return fmt.Sprintf("deny %d", r.Status)
}

// evaluator is the key of Authorino's own evaluator that granted.
func evaluator(r judge.Result) string {
	for _, key := range r.Granted {
		if key != kuadrant.KeyFailClose {
			return key
		}
	}
	return "-"
}

func by(j differential.Judged) string {
	if j.Expressed.Allowed {
		return j.Expressed.By.String()
	}
	return "-"
}
