package pipeline

import (
	"encoding/json"
	"fmt"
)

// World is what a cluster holds.
type World struct {
	// Gateway is a gateway.networking.k8s.io/v1 Gateway.
	Gateway json.RawMessage `json:"gateway"`
	// HTTPRoutes are HTTPRoutes of the same group. Without any, one route with the
	// path prefix "/" is attached to every listener.
	HTTPRoutes []json.RawMessage `json:"httpRoutes,omitempty"`
	// AuthPolicies are kuadrant.io/v1 AuthPolicies.
	AuthPolicies []json.RawMessage `json:"authPolicies"`
	// Tokens are the bearer tokens that the API server accepts.
	Tokens map[string]Token `json:"tokens,omitempty"`
	// Unobserved loads the AuthConfigs exactly as Kuadrant writes them; results
	// then have no Granted.
	Unobserved bool `json:"unobserved,omitempty"`
}

// PolicyReport says what became of an AuthPolicy.
type PolicyReport struct {
	Name     string `json:"name"`
	Accepted bool   `json:"accepted"`
	Error    string `json:"error,omitempty"`
}

// AuthConfigReport says what became of one path.
type AuthConfigReport struct {
	Name string `json:"name"`
	// Path names gateway, listener, route and rule.
	Path      string   `json:"path"`
	Listener  string   `json:"listener"`
	Hostnames []string `json:"hostnames"`
	// Policies whose rules are in it.
	Policies []string `json:"policies"`
	Ready    bool     `json:"ready"`
	// Reason is that of the AuthConfig's Ready condition.
	Reason   string   `json:"reason"`
	Error    string   `json:"error,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Judge is a loaded world. It is not for concurrent use.
type Judge struct {
	configs  []*authConfig
	policies []PolicyReport
	hosts    hostIndex
	reviews  *reviewServer
	store    *store
	// plain has the AuthConfigs without the observer; measuring fills it.
	plain    *store
	observed bool
}

// Load computes the effective policies of a world and gives them to Authorino. A
// user's mistake in a policy is in the reports; the error says that the world
// itself could not be read.
func Load(world World) (*Judge, error) {
	gw, err := decodeGateway(world.Gateway)
	if err != nil {
		return nil, err
	}

	routes, err := decodeRoutes(world.HTTPRoutes, gw)
	if err != nil {
		return nil, err
	}

	policies, err := decodePolicies(world.AuthPolicies)
	if err != nil {
		return nil, err
	}

	j := &Judge{observed: !world.Unobserved}

	var sets []*actionSet

	accepted := j.accept(policies, gw, routes)
	for _, p := range pathsOf(gw, routes) {
		rules := effective(p.policies(accepted))
		if rules == nil {
			continue
		}

		if _, taken := rules[ruleID{groupSuccessFilters, grantedKey}]; taken && j.observed {
			return nil, fmt.Errorf("%s: response item %q: the judge needs this name, choose another", p, grantedKey)
		}

		config := newAuthConfig(p, rules)
		j.configs = append(j.configs, config)

		ofPath, err := actionSetsOf(config, rules.when())
		if err != nil {
			return nil, err
		}

		sets = append(sets, ofPath...)
	}

	j.hosts = newHostIndex(sets)
	j.reviews = newReviewServer(world.Tokens)

	return j, j.fill()
}

// fill runs Authorino's reconciler.
func (j *Judge) fill() error {
	specOf := (*authConfig).observed
	if !j.observed {
		specOf = (*authConfig).written
	}

	var err error
	if j.store, err = newStore(j.configs, specOf, j.reviews.URL); err != nil {
		j.reviews.Close()

		return err
	}

	for _, config := range j.configs {
		config.status = j.store.reconcile(config)
		config.warnOfPanics()
	}

	return nil
}

// accept keeps the policies whose target exists.
// Read in: kuadrant-operator v1.5.2 internal/controller/auth_policies_validator.go
// and auth_workflow_helpers.go, isAuthPolicyAcceptedAndNotDeletedFunc.
func (j *Judge) accept(policies []*authPolicy, gw *gateway, routes []*httpRoute) []*authPolicy {
	var accepted []*authPolicy

	for _, policy := range policies {
		report := PolicyReport{Name: policy.key(), Accepted: true}

		switch {
		case !policy.DeletionTimestamp.IsZero():
			report = PolicyReport{Name: policy.key(), Error: "is being deleted"}
		case !policy.hasTarget(gw, routes):
			report = PolicyReport{Name: policy.key(), Error: "TargetNotFound: its targetRef names nothing in this world"}
		default:
			accepted = append(accepted, policy)
		}

		j.policies = append(j.policies, report)
	}

	return accepted
}

// Policies tells what became of each AuthPolicy, oldest first.
func (j *Judge) Policies() []PolicyReport { return j.policies }

// AuthConfigs tells what became of each path that has a policy.
func (j *Judge) AuthConfigs() []AuthConfigReport {
	reports := make([]AuthConfigReport, 0, len(j.configs))

	for _, config := range j.configs {
		reports = append(reports, AuthConfigReport{
			Name: config.name, Path: config.path.String(), Listener: config.path.listener.Name,
			Hostnames: hostnamesOf(config.path.listener, config.path.route), Policies: config.sources,
			Ready: config.status.ready, Reason: config.status.reason, Error: config.status.message,
			Warnings: config.warnings,
		})
	}

	return reports
}

// Close ends the loopback server and Authorino's workers.
func (j *Judge) Close() {
	j.store.remove(j.configs)

	if j.plain != nil {
		j.plain.remove(j.configs)
	}

	j.reviews.Close()
}
