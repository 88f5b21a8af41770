package stack

import (
	"slices"
	"strings"
	"testing"
)

func set(hostname, scope string, predicates ...string) ActionSet {
	return ActionSet{
		Name: scope, Hostnames: []string{hostname}, Predicates: predicates, Auth: []AuthAction{{Scope: scope}},
	}
}

func TestScopes(t *testing.T) {
	sets := []ActionSet{
		set("*", "everything"),
		set("*.test", "wide"),
		set("*.example.test", "post", "request.method == 'POST'"),
		set("*.example.test", "prefix", "request.url_path.startsWith('/mcp')"),
		set("a.example.test", "exact", "request.url_path == '/only'"),
		set("h.example.test", "header", "request.headers.exists(h, h.lowerAscii() == 'x-a' && request.headers[h] == '1')"),
		{Name: "when", Hostnames: []string{"w.example.test"}, Auth: []AuthAction{
			{Scope: "first", Predicates: []string{"request.method == 'GET'"}}, {Scope: "second"},
		}},
	}

	for name, c := range map[string]struct {
		request Request
		want    []string
	}{
		"no host name matches but the one for all": {Request{Host: "a.other", Path: "/"}, []string{"everything"}},
		"a wildcard matches more than one label":   {Request{Host: "x.y.test", Path: "/"}, []string{"wide"}},
		"the longest wildcard":                     {Request{Host: "x.example.test", Method: "POST", Path: "/"}, []string{"post"}},
		"the next set of the same host name":       {Request{Host: "x.example.test", Method: "GET", Path: "/mcp/?q=1"}, []string{"prefix"}},
		"no way back to a shorter host name":       {Request{Host: "x.example.test", Method: "GET", Path: "/"}, nil},
		"exact before wildcard":                    {Request{Host: "a.example.test", Method: "POST", Path: "/only"}, []string{"exact"}},
		"exact hides wildcard":                     {Request{Host: "a.example.test", Method: "POST", Path: "/mcp"}, nil},
		"a port is ignored":                        {Request{Host: "a.example.test:8080", Path: "/only?q=1"}, []string{"exact"}},
		"a wildcard does not match its parent":     {Request{Host: "example.test", Path: "/mcp"}, []string{"wide"}},
		"upper case is another name":               {Request{Host: "A.EXAMPLE.TEST", Path: "/only"}, []string{"everything"}},
		"header":                                   {Request{Host: "h.example.test", Path: "/", Headers: map[string]string{"x-a": "1"}}, []string{"header"}},
		"no header":                                {Request{Host: "h.example.test", Path: "/"}, nil},
		"predicates of a question":                 {Request{Host: "w.example.test", Method: "POST", Path: "/"}, []string{"second"}},
		"several questions":                        {Request{Host: "w.example.test", Method: "GET", Path: "/"}, []string{"first", "second"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Scopes(sets, c.request)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %q and %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestScopesFailsOnWhatItDoesNotKnow(t *testing.T) {
	for predicate, words := range map[string]string{
		"'a' in queryMap(request.query)": "queryMap",
		"source.address == '1'":          "source",
		"request.unknown == '1'":         "unknown",
		"request.method":                 "yes or no",
	} {
		_, err := Scopes([]ActionSet{set("a", "s", predicate)}, Request{Host: "a", Method: "GET", Path: "/"})
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", predicate, err)
		}
	}
}
