package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/cmd/internal/settings"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/requests"
)

func (a *app) translateCommand() *cobra.Command {
	var output string
	var emission emission
	cmd := &cobra.Command{
		Use:   "translate -f FILE",
		Short: "Write the objects that enforce the policies",
		Long: `Write the Kuadrant AuthPolicies, or the Envoy Gateway SecurityPolicies, that enforce the policies.

A policy that cannot be taken grants nothing, but its target is closed all the same, so the
objects are written whenever the input can be read. What is wrong is said on stderr.
A Gateway that is not in the input is assumed to exist.

` + exitCodes,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "yaml", "json"); err != nil {
				return err
			}
			t, err := a.translation(cmd, emission.set)
			if err != nil {
				return err
			}
			if t.usesTokens() && !cmd.Flags().Changed(settings.FlagAudience) {
				a.notes([]string{fmt.Sprintf("tokens of ServiceAccounts are accepted for the audience %s; it must be the one that the agents' tokens are made for (--%s)", requests.DefaultAudience, settings.FlagAudience)})
			}
			a.tell(t.faults)
			if err := writeObjects(a.stdout, t.result, output); err != nil {
				return err
			}
			return t.exit()
		},
	}
	emission.register(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "yaml", "`FORMAT`: yaml or json (one List)")
	return cmd
}

func writeObjects(w io.Writer, result *translator.Result, output string) error {
	objects := []any{}
	for _, gw := range result.Gateways {
		for _, ap := range gw.Kuadrant.Objects {
			u, err := kuadrant.Unstructured(ap)
			if err != nil {
				return err
			}
			objects = append(objects, u.Object)
		}
		more, err := gw.EnvoyGateway.Manifests()
		if err != nil {
			return err
		}
		for _, u := range more {
			objects = append(objects, u.Object)
		}
	}
	if output == "json" {
		return writeJSON(w, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	for i, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
