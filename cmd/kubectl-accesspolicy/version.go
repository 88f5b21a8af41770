package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/cmd/internal/version"
)

func (a *app) versionCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which version this is and which API it reads",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.stdout, "%s %s (%s, %s/%s)\nreads %s XAccessPolicy\n", name, version.Build(), runtime.Version(), runtime.GOOS, runtime.GOARCH, v1alpha1.GroupVersion)
			return err
		},
	}
}
