package pipeline

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/gogo/googleapis/google/rpc"
	"github.com/kuadrant/authorino/pkg/service"
)

// Result is the answer to a request.
type Result struct {
	// Allowed says that the request reaches its upstream.
	Allowed bool `json:"allowed"`
	// Status is the HTTP status of the denial, 200 when allowed.
	Status int `json:"status"`
	// Code is Authorino's gRPC code; OK also where Authorino was not asked.
	Code string `json:"code"`
	// Reason is X-Ext-Auth-Reason, or what the judge has to say where Authorino was
	// not asked or would not answer.
	Reason string `json:"reason,omitempty"`
	// Headers and Body are those of the denial.
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	// RequestHeaders are what Authorino adds for the upstream.
	RequestHeaders map[string]string `json:"requestHeaders,omitempty"`
	// Metadata are the policy's own response filters.
	Metadata map[string]any `json:"metadata,omitempty"`
	// AuthConfig and Path say which AuthConfig answered; empty without one.
	AuthConfig string `json:"authConfig,omitempty"`
	Path       string `json:"path,omitempty"`
	// Granted are the keys of auth.authorization after a successful authorization
	// phase, sorted.
	Granted []string `json:"granted,omitempty"`
	// Tied are all AuthConfigs that the operator may equally well have put first,
	// with their verdicts. Allowed is true when any of them allows.
	Tied []Tied `json:"tied,omitempty"`
	// Crash says that this request ends Authorino's process.
	Crash bool `json:"crash,omitempty"`
}

// Tied is one of several AuthConfigs of equal rank.
type Tied struct {
	AuthConfig string `json:"authConfig"`
	Path       string `json:"path"`
	Allowed    bool   `json:"allowed"`
}

const (
	reasonNoActionSet = "no action set"
	reasonWhen        = "the policy's `when` does not match"
)

// Check judges a request. The error says that the request is not one.
func (j *Judge) Check(request Request) (Result, error) {
	if err := request.validate(); err != nil {
		return Result{}, err
	}

	sets, failed := j.selected(request)
	if failed != nil {
		return *failed, nil
	}

	if len(sets) == 0 {
		return Result{Allowed: true, Status: http.StatusOK, Code: rpc.OK.String(), Reason: reasonNoActionSet}, nil
	}

	return j.worst(request, sets), nil
}

// selected finds the action sets as the shim does. For Envoy's own filter the same
// selection stands in: which route carries which configuration is not known here.
func (j *Judge) selected(request Request) ([]*actionSet, *Result) {
	if request.Host == "" {
		return nil, refusal("the shim finds no host name")
	}

	sets, err := j.hosts.selected(request.shimAttributes())
	if err != nil {
		return nil, refusal(err.Error())
	}

	return sets, nil
}

// refusal is the shim's answer to an error of its own, with the default failure
// mode "deny".
// Read in: kuadrant-operator v1.5.2 internal/wasm/utils.go, AuthServiceFailureMode.
func refusal(reason string) *Result {
	return &Result{Status: http.StatusInternalServerError, Code: rpc.UNAVAILABLE.String(), Reason: reason}
}

// worst asks every action set of equal rank and keeps an answer that allows.
func (j *Judge) worst(request Request, sets []*actionSet) Result {
	var (
		answer Result
		tied   []Tied
	)

	for i, set := range sets {
		result := j.ask(request, set)
		tied = append(tied, Tied{AuthConfig: result.AuthConfig, Path: result.Path, Allowed: result.Allowed})

		if i == 0 || result.Allowed && !answer.Allowed {
			answer = result
		}
	}

	if len(sets) > 1 {
		answer.Tied = tied
	}

	return answer
}

// ask runs one action set: the conditions of the policy in the shim, then Authorino.
func (j *Judge) ask(request Request, set *actionSet) Result {
	result := Result{AuthConfig: set.target.name, Path: set.target.path.String()}

	applies, err := allTrue(set.when, request.shimAttributes())

	switch {
	case err != nil:
		result.Status, result.Code, result.Reason = http.StatusInternalServerError, rpc.UNAVAILABLE.String(), err.Error()

		return result
	case !applies:
		result.Allowed, result.Status, result.Code, result.Reason = true, http.StatusOK, rpc.OK.String(), reasonWhen

		return result
	}

	response, err := j.call(request.checkRequest(set.target.name))
	if err != nil {
		result.Crash = true
		result.Status, result.Code, result.Reason = http.StatusInternalServerError, rpc.UNAVAILABLE.String(), err.Error()

		return result
	}

	result.read(response, j.observed)

	return result
}

// call is Authorino's Check. An error is a panic in it, which ends Authorino's process:
// neither it nor its gRPC server recovers (main.go of v0.27.0). A panic in one of its
// evaluators' goroutines cannot be caught here and ends the judge as well.
func (j *Judge) call(request *authv3.CheckRequest) (response *authv3.CheckResponse, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("this request ends Authorino's process: %v", panicked)
		}
	}()

	// Check reports everything in its response; its error is always nil.
	return j.store.service().Check(context.Background(), request)
}

// read takes over Authorino's response. Which of the two kinds it is decides, as in
// the shim; the status code of the message is only reported.
func (r *Result) read(response *authv3.CheckResponse, observed bool) {
	r.Code = rpc.Code(response.GetStatus().GetCode()).String()

	if denied := response.GetDeniedResponse(); denied != nil {
		r.Status = int(denied.GetStatus().GetCode())
		if r.Status == 0 {
			r.Status = http.StatusForbidden
		}

		r.Body = denied.GetBody()
		r.Headers = map[string]string{}

		for _, option := range denied.GetHeaders() {
			r.Headers[option.GetHeader().GetKey()] = option.GetHeader().GetValue()
		}

		r.Reason = r.Headers[service.X_EXT_AUTH_REASON_HEADER]

		return
	}

	if response.GetOkResponse() == nil {
		*r = *refusal("Authorino's response has neither an OK nor a denial")

		return
	}

	r.Allowed, r.Status = true, http.StatusOK

	for _, option := range response.GetOkResponse().GetHeaders() {
		if r.RequestHeaders == nil {
			r.RequestHeaders = map[string]string{}
		}

		r.RequestHeaders[option.GetHeader().GetKey()] = option.GetHeader().GetValue()
	}

	r.Metadata = response.GetDynamicMetadata().AsMap()

	if observed {
		granted, _ := r.Metadata[grantedKey].(map[string]any)
		r.Granted = slices.Sorted(maps.Keys(granted))
		delete(r.Metadata, grantedKey)
	}
}
