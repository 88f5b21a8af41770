package pipeline

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// Token is what the API server knows of one bearer token.
type Token struct {
	Username string              `json:"username"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
	// Audiences the token was issued for. With none it is good for nobody.
	Audiences []string `json:"audiences"`
}

// apiServerAudience is what a review without audiences is held against.
const apiServerAudience = "https://kubernetes.default.svc.cluster.local"

// reviewServer is a loopback server that answers the two things Authorino's client
// asks of an API server: discovery of authentication.k8s.io/v1 and TokenReviews.
type reviewServer struct {
	*httptest.Server
	tokens map[string]Token
}

func newReviewServer(tokens map[string]Token) *reviewServer {
	s := &reviewServer{tokens: tokens}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /api", reply(metav1.APIVersions{Versions: []string{"v1"}}))
	mux.HandleFunc("GET /apis", reply(metav1.APIGroupList{Groups: []metav1.APIGroup{authenticationGroup()}}))
	mux.HandleFunc("GET /apis/authentication.k8s.io", reply(authenticationGroup()))
	mux.HandleFunc("GET /apis/authentication.k8s.io/v1", reply(metav1.APIResourceList{
		GroupVersion: authenticationv1.SchemeGroupVersion.String(),
		APIResources: []metav1.APIResource{{Name: "tokenreviews", Kind: "TokenReview", Verbs: metav1.Verbs{"create"}}},
	}))
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", s.review)
	s.Server = httptest.NewServer(mux)

	return s
}

func authenticationGroup() metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{
		GroupVersion: authenticationv1.SchemeGroupVersion.String(),
		Version:      authenticationv1.SchemeGroupVersion.Version,
	}

	return metav1.APIGroup{
		Name: authenticationv1.GroupName, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
}

func reply(object any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, object) }
}

func writeJSON(w http.ResponseWriter, status int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error here means that the client is gone.
	_ = json.NewEncoder(w).Encode(object)
}

// review answers a TokenReview.
// Read in: Kubernetes v1.37.2 pkg/registry/authentication/tokenreview/storage.go.
func (s *reviewServer) review(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		badRequest(w, err.Error())

		return
	}

	// The client sends protobuf for a kind that has it; it takes JSON back.
	object := &authenticationv1.TokenReview{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, object); err != nil {
		badRequest(w, err.Error())

		return
	}

	if object.Spec.Token == "" {
		badRequest(w, "token is required for TokenReview in authentication")

		return
	}

	object.TypeMeta = metav1.TypeMeta{
		APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview",
	}
	object.Status = s.status(object.Spec)
	writeJSON(w, http.StatusCreated, object)
}

func badRequest(w http.ResponseWriter, message string) {
	writeJSON(w, http.StatusBadRequest, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonBadRequest, Code: http.StatusBadRequest, Message: message,
	})
}

func (s *reviewServer) status(spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	token, known := s.tokens[bearerOf(spec.Token)]
	if !known {
		return authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
	}

	wanted := spec.Audiences
	if len(wanted) == 0 {
		wanted = []string{apiServerAudience}
	}

	shared := slices.DeleteFunc(slices.Clone(token.Audiences), func(audience string) bool {
		return !slices.Contains(wanted, audience)
	})
	if len(shared) == 0 {
		return authenticationv1.TokenReviewStatus{
			Error: fmt.Sprintf("[invalid bearer token, token audiences %q is invalid for the target audiences %q]", token.Audiences, wanted),
		}
	}

	status := authenticationv1.TokenReviewStatus{
		Authenticated: true,
		Audiences:     shared,
		User: authenticationv1.UserInfo{
			Username: token.Username, UID: token.UID, Groups: token.Groups,
		},
	}
	if len(token.Extra) > 0 {
		status.User.Extra = map[string]authenticationv1.ExtraValue{}
		for name, values := range token.Extra {
			status.User.Extra[name] = values
		}
	}

	return status
}

// bearerOf is the part of a token that the API server looks at: it puts the token
// into an Authorization header and reads the header back, so everything after a
// blank is ignored.
// Read in: k8s.io/apiserver v0.37.2 pkg/authentication/request/bearertoken/bearertoken.go.
func bearerOf(token string) string {
	parts := strings.SplitN(strings.TrimSpace("Bearer "+token), " ", 3)
	if len(parts) < 2 {
		return ""
	}

	return parts[1]
}
