package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// policy is a policy with a name, and text at the end of its only rule.
func policy(name, end string) string {
	return fmt.Sprintf(`apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: XAccessPolicy
metadata: {name: %s, namespace: demo}
spec:
  targetRefs:
  - {group: gateway.networking.k8s.io, kind: Gateway, name: prod}
  action: Allow
  rules:
  - name: r
    source: {type: ServiceAccount, serviceAccount: {name: reader}}
%s`, name, end)
}

// run executes a command line on a text for standard input.
func run(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, faults bytes.Buffer
	code = execute(append([]string{"kubectl-accesspolicy"}, args...), strings.NewReader(stdin), &out, &faults)
	return code, out.String(), faults.String()
}

// Input that cannot be read ends with exit code 1, says where, and writes nothing.
func TestUnreadableInput(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"malformed YAML":    {policy("p", "---\na: [1,\n"), "error: stdin: document 2: line 12: did not find expected node content\n"},
		"only another kind": {"apiVersion: v1\nkind: Service\nmetadata: {name: s}\n", "note: stdin: objects of kind Service (v1) are not looked at and were skipped\nerror: there is no XAccessPolicy in -\n"},
		"nothing":           {"", "error: there is no XAccessPolicy in -\n"},
		"NUL":               {"a: \x00\n", "error: stdin: line 1: control character U+0000; remove it\n"},
		"a tab":             {"a:\n\tb: 1\n", "error: stdin: document 1: line 2: found character that cannot start any token\n"},
		"100,000 brackets":  {strings.Repeat("[", 100_000), "error: stdin: document 1: line 1: exceeded max depth of 10000\n"},
		"a Gateway that is off": {"apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g}\nspec: {listeners: [{port: x}]}\n",
			"error: stdin: document 1: Gateway g: spec.listeners[0].port: a whole number in range is expected here, not text\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(c.text, "translate", "-f", "-")
			require.Equal(t, exitUsage, code)
			require.Empty(t, stdout)
			require.Equal(t, c.want, stderr)
		})
	}
}

// Policies that cannot be taken end with exit code 2, name the field, and their target is closed.
func TestRefusedInput(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown field": {policy("p", "    authorization: {type: Inline, mcp: {methods: [{name: tools/call, parms: [add]}]}}\n"),
			"error: demo/p: spec.rules[0].authorization.mcp.methods[0].parms: the field is not known"},
		"a key twice":       {policy("p", "    source: {type: SPIFFE}\n"), "error: demo/p: spec.rules[0].source: the field stands twice; keep one"},
		"a null":            {policy("p", "    authorization:\n"), "error: demo/p: spec.rules[0].authorization: null is no value here"},
		"a wrong type":      {policy("p", "    authorization: 5\n"), "error: demo/p: spec.rules[0].authorization: an object is expected here, not a number"},
		"a newer version":   {strings.Replace(policy("p", ""), "v1alpha1", "v1", 1), "error: demo/p: apiVersion: the version agentic.networking.x-k8s.io/v1 is not known"},
		"the older kind":    {strings.Replace(policy("p", ""), "XAccessPolicy", "AccessPolicy", 1), "error: demo/p: kind: AccessPolicy is not read"},
		"twice":             {policy("p", "---\n") + policy("p", ""), "error: demo/p: metadata.name: the input has 2 policies of this namespace and name; keep one"},
		"twice, where":      {policy("p", "---\n") + policy("p", ""), "note: demo/p: the copies stand in stdin, stdin"},
		"absurd CEL":        {policy("p", "    authorization: {type: CEL, cel: {expression: \""+strings.Repeat("(", 2000)+"true"+strings.Repeat(")", 2000)+"\"}}\n"), "error: demo/p: spec.rules[0].authorization.cel"},
		"megabytes of CEL":  {policy("p", "    authorization: {type: CEL, cel: {expression: \""+strings.Repeat("true || ", 500_000)+"true\"}}\n"), "error: demo/p: spec.rules[0].authorization.cel"},
		"an escape in text": {strings.Replace(policy("p", ""), "name: r\n", `name: "r\e[31m\nerror: all is well"`+"\n", 1), "error: demo/p: spec.rules[0].name: "},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			code, stdout, stderr := run(c.text, "translate", "-f", "-")
			require.Equal(t, exitRefused, code)
			require.Contains(t, stdout, "fail-close")
			require.NotContains(t, stdout, "demo/p:", "a refused policy grants nothing")
			require.Contains(t, stderr, c.want)
			require.NotContains(t, stderr, "\x1b")
			require.NotContains(t, stderr, "\nerror: all is well")
			require.Less(t, len(stderr), 5000)
			require.Less(t, time.Since(begin), 10*time.Second)
		})
	}
}

func TestPolicyThatTargetsNothing(t *testing.T) {
	text := strings.Replace(policy("p", ""), "targetRefs:\n  - {group: gateway.networking.k8s.io, kind: Gateway, name: prod}\n", "targetRefs: []\n", 1)
	code, stdout, stderr := run(text, "translate", "-f", "-")
	require.Equal(t, exitRefused, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "error: demo/p: spec.targetRefs: the policy targets nothing; name a Gateway\n")
}

// Texts that look odd and are fine give what the plain one gives.
func TestOddInputThatIsFine(t *testing.T) {
	want, plain, _ := run(policy("p", ""), "translate", "-f", "-")
	require.Zero(t, want)
	for name, text := range map[string]string{
		"byte order mark": "\ufeff" + policy("p", ""),
		"CRLF":            strings.ReplaceAll(policy("p", ""), "\n", "\r\n"),
		"empty documents": "---\n# nothing\n---\n" + policy("p", "") + "---\n",
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, _ := run(text, "translate", "-f", "-")
			require.Zero(t, code)
			require.Equal(t, plain, stdout)
		})
	}
}

func TestFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	write("mounted/..2026/p.yaml", policy("p", ""))
	require.NoError(t, os.Symlink("..2026/p.yaml", "mounted/p.yaml"))
	write("deep/a/b/p.JSON", `{"apiVersion":"v1","kind":"List","items":[]}`)
	write("bad/one.yaml", "a: b: c\n")
	write("bad/two.yaml", "a: [\n")
	require.NoError(t, os.Mkdir("empty", 0o755))
	require.NoError(t, os.Symlink("nowhere", "dangling.yaml"))

	code, _, stderr := run("", "translate", "-f", "mounted", "-f", "mounted/p.yaml", "-f", "deep", "--token-audience", "x")
	require.Zero(t, code, stderr)
	for name, c := range map[string]struct{ file, want string }{
		"no such file": {"nope.yaml", "error: nope.yaml: no such file or directory\n"},
		"empty folder": {"empty", "error: empty: no *.yaml, *.yml or *.json in this folder or below\n"},
		"broken link":  {"dangling.yaml", "error: dangling.yaml: no such file or directory\n"},
		"every fault":  {"bad", "error: bad/one.yaml: document 1: line 1: mapping values are not allowed in this context\nerror: bad/two.yaml: document 1: line 1: did not find expected node content\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run("", "explain", "-f", c.file)
			require.Equal(t, exitUsage, code)
			require.Empty(t, stdout)
			require.Equal(t, c.want, stderr)
		})
	}
	t.Run("unreadable file", func(t *testing.T) {
		write("secret.yaml", policy("p", ""))
		require.NoError(t, os.Chmod("secret.yaml", 0))
		if _, err := os.ReadFile("secret.yaml"); err == nil {
			t.Skip("this user may read everything")
		}
		code, _, stderr := run("", "translate", "-f", "secret.yaml")
		require.Equal(t, exitUsage, code)
		require.Equal(t, "error: secret.yaml: permission denied\n", stderr)
	})
}

// endless never ends, and counts what is taken from it.
type endless struct{ taken int }

func (e *endless) Read(p []byte) (int, error) {
	e.taken += len(p)
	return copy(p, bytes.Repeat([]byte("#"), len(p))), nil
}

func TestLargeInputIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.yaml")
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, file.Truncate(50_000_000))
	require.NoError(t, file.Close())
	before := allocated()
	code, _, stderr := run("", "translate", "-f", path)
	require.Equal(t, exitUsage, code)
	require.Equal(t, "error: "+path+": larger than 16 MiB; split it into several files\n", stderr)
	require.Less(t, allocated()-before, uint64(5<<20), "the size is known before anything is read")

	var stdout, faults bytes.Buffer
	source := &endless{}
	require.Equal(t, exitUsage, execute([]string{"kubectl-accesspolicy", "translate", "-f", "-"}, source, &stdout, &faults))
	require.Equal(t, "error: stdin: larger than 16 MiB; split it into several files\n", faults.String())
	require.Less(t, source.taken, 64<<20)
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestTenThousandPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var b strings.Builder
	for i := range 10_000 {
		b.WriteString(policy(fmt.Sprintf("p%05d", i), fmt.Sprintf("    authorization: {type: Inline, mcp: {methods: [{name: tools/call, params: [tool-%d]}]}}\n---\n", i)))
	}
	before, begin := allocated(), time.Now()
	code, stdout, stderr := run(b.String(), "translate", "-f", "-", "--token-audience", "x")
	took := time.Since(begin)
	t.Logf("%d bytes in, %d bytes out, exit code %d, %v, %d MB allocated; %d bytes of notes", b.Len(), len(stdout), code, took.Round(time.Millisecond), (allocated()-before)>>20, len(stderr))
	require.Zero(t, code)
	require.Contains(t, stdout, "fail-close")
	require.Less(t, took, time.Minute)
}

// closed refuses to be written to.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, errors.New("file already closed") }

func TestOutputThatCannotBeWritten(t *testing.T) {
	for _, args := range [][]string{{"translate"}, {"explain"}, {"explain", "-o", "json"}, {"can", "--tool", "add"}, {"can", "--tool", "add", "-o", "json"}} {
		var stderr bytes.Buffer
		code := execute(append([]string{"kubectl-accesspolicy", "-f", "-"}, args...), strings.NewReader(policy("p", "")), closed{}, &stderr)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, stderr.String(), "error: the output could not be written: file already closed\n", args)
	}
}

// The name under which the program was called is the one that it speaks of.
func TestNameInUsage(t *testing.T) {
	for called, want := range map[string]string{"/bin/kubectl-accesspolicy": "kubectl accesspolicy translate -f", "./accesspolicy": "accesspolicy translate -f", `kubectl-accesspolicy.exe`: "kubectl accesspolicy translate -f"} {
		var stdout, stderr bytes.Buffer
		require.Zero(t, execute([]string{called, "translate", "--help"}, strings.NewReader(""), &stdout, &stderr))
		require.Contains(t, stdout.String(), "\n  "+want)
	}
}

// A command line that says too little or too much ends with one line on stderr and a pointer to the help.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"translate":                                               "nothing to read; name a file or folder with -f, or - for stdin",
		"translate -f - -o xml":                                   `--output is "xml"; it can be yaml or json`,
		"translate policies.yaml":                                 `"policies.yaml" is not a flag; files are given with -f`,
		"transform":                                               `there is no verb "transform"`,
		"translate --nope":                                        "unknown flag: --nope",
		"translate -f - --profile x":                              `profile "x" is not known; use mcp-gateway-0.9 or generic`,
		"can -f -":                                                "say what is called: --tool, --prompt, --resource or --mcp-method, or a plain request by --method, --host, --path or --header",
		"can -f - --tool a --prompt b":                            "--tool and --prompt are two calls; ask for one",
		"can -f - --tool=":                                        "--tool is empty",
		"can -f - --tool a --as reader":                           `--as "reader" is neither namespace/name of a ServiceAccount nor a SPIFFE ID that begins with spiffe://`,
		"can -f - --tool a --header blue":                         `--header "blue" is not name=value`,
		"can -f - --path / --server s":                            "--server belongs to an MCP call; add --tool, --prompt, --resource or --mcp-method",
		"can -f - --as a/b --anonymous --path /":                  "--anonymous and --as are two callers; ask for one",
		"can -f - --as a/b --as c/d --path /":                     "--as: a caller has one token, not those of a/b and c/d",
		"can -f - --resource a --mcp-method tools/call":           "--resource does not go with --mcp-method tools/call, only with methods of resources/",
		"can -f - --as spiffe://a/b --as spiffe://a/c --path /":   "--as: a caller has one SPIFFE ID, not spiffe://a/b and spiffe://a/c",
		"test --enforcer nobody":                                  `--enforcer is "nobody"; it can be plan or kuadrant or envoy-gateway`,
		"translate -f - --token-verification jwt":                 `token issuer "": verification by jwt needs the URL of the cluster's issuer`,
		"translate -f - --max-named-evaluators 0":                 "--max-named-evaluators is 0; at least 1 is needed",
		"translate -f - --trust-domain https://example.com":       `trust domain: "https://example.com" is not a SPIFFE trust domain`,
		"translate -f - --mcp-header tool=x-tool,colour=x-colour": `--mcp-header: "colour" is not known; there are method, prompt, resource, server, tool`,
	} {
		t.Run(line, func(t *testing.T) {
			code, stdout, stderr := run(policy("p", ""), strings.Fields(line)...)
			require.Equal(t, exitUsage, code)
			require.Empty(t, stdout)
			first, rest, _ := strings.Cut(stderr, "\n")
			require.Equal(t, "error: "+want, first)
			require.Contains(t, rest, " --help says what it takes\n")
		})
	}
}
