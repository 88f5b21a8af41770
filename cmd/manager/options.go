package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"accesspolicy-operator/cmd/internal/settings"
	"accesspolicy-operator/controllers"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/requests"
)

// options are the flags of the operator.
type options struct {
	controllers controllers.Config
	translation settings.Flags

	leaderElection          bool
	leaderElectionNamespace string
	leaseDuration           time.Duration
	metricsAddress          string
	healthAddress           string
	pprofAddress            string
	logLevel                string
	logFormat               string
	kubeQPS                 float32
	kubeBurst               int
}

func (o *options) register(flags *pflag.FlagSet) {
	c := &o.controllers
	flags.StringArrayVar(&c.GatewayControllers, "gateway-controller", controllers.DefaultGatewayControllers, "controllerName of GatewayClasses whose Gateways are looked after; can be repeated (`NAME`)")
	flags.StringArrayVar(&c.EnvoyGatewayControllers, "envoy-gateway-controller", controllers.DefaultEnvoyGatewayControllers, "controllerName of GatewayClasses that are an Envoy Gateway's, looked after as well; can be repeated (`NAME`)")
	flags.StringVar(&c.Enforcer, "enforcer", translator.EnforcerAuto, "what enforces policies on Gateways that are not annotated with "+translator.AnnotationEnforcer+": "+strings.Join(translator.EnforcerNames(), ", ")+" (`NAME`)")
	flags.DurationVar(&c.KeysRefresh, "jwks-refresh", time.Minute, "`DURATION` between two reads of the keys of ServiceAccount tokens, which SecurityPolicies have in them; a key that the API server drops is trusted that much longer")
	flags.IntVar(&c.Concurrency, "concurrency", 4, "`NUMBER` of Gateways that are worked on at a time")
	o.translation.Register(flags, "")
	flags.Lookup(settings.FlagIssuer).Usage += ", and for Envoy Gateway in place of the name that the API server gives"
	flags.BoolVar(&o.leaderElection, "leader-elect", true, "work only while holding the lease accesspolicy-operator, so that several replicas can run")
	flags.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", "", "`NAMESPACE` of the lease; in a cluster the operator's own")
	flags.DurationVar(&o.leaseDuration, "leader-election-lease", 15*time.Second, "`DURATION` after which the lease of a leader that is gone can be taken")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "`ADDRESS` of the Prometheus metrics, 0 for none")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "`ADDRESS` of /healthz and /readyz, 0 for none")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", "0", "`ADDRESS` of Go's profiles, 0 for none; never one that others can reach")
	flags.StringVar(&o.logLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "`FORMAT` of the log: json or text")
	flags.Float32Var(&o.kubeQPS, "kube-api-qps", -1, "requests to the API server per second; -1 leaves the limit to the API server's priority and fairness (`NUMBER`)")
	flags.IntVar(&o.kubeBurst, "kube-api-burst", 0, "requests to the API server at once, with --kube-api-qps (`NUMBER`)")
}

// complete turns the flags into the configuration; an error names what cannot be used.
func (o *options) complete(flags *pflag.FlagSet) error {
	if !flags.Changed(settings.FlagAudience) {
		return fmt.Errorf("--%s is missing: name the audience that agents' tokens are made for. It has no default, because tokens for the API server's own audience would be of use to every server behind a Gateway", settings.FlagAudience)
	}
	translation, err := o.translation.Options(flags, requests.Settings{})
	if err != nil {
		return err
	}
	o.controllers.Translation = translation
	if o.leaseDuration < minLease {
		return fmt.Errorf("--leader-election-lease is %s; at least %s is needed", o.leaseDuration, minLease)
	}
	return o.controllers.Validate()
}

// minLease leaves time to renew a lease: it is tried every tenth, and given up at two thirds.
const minLease = 2 * time.Second

// handler makes the log's handler; an error names the flag that cannot be used.
func (o *options) handler(out io.Writer) (slog.Handler, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn and error", o.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "json":
		return slog.NewJSONHandler(out, opts), nil
	case "text":
		return slog.NewTextHandler(out, opts), nil
	}
	return nil, fmt.Errorf("--log-format: %q is neither json nor text", o.logFormat)
}
