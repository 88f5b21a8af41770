// Command docs writes the tables of the operator's flags and metrics into docs/operations.md and that of the ledger into
// docs/enforcers.md, between comments that mark where they go.
//
//	go run ./hack/docs
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"accesspolicy-operator/controllers"
	"accesspolicy-operator/translator/ledger"
)

const (
	operations = "docs/operations.md"
	enforcers  = "docs/enforcers.md"
)

func main() {
	if err := errors.Join(writeOperations(), writeEnforcers()); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func writeOperations() error {
	text, err := os.ReadFile(operations)
	if err != nil {
		return err
	}
	flags, err := flagTable()
	if err != nil {
		return err
	}
	metrics, names, err := metricTable()
	if err != nil {
		return err
	}
	if text, err = replace(operations, text, "flags", flags); err != nil {
		return err
	}
	if text, err = replace(operations, text, "metrics", ""); err != nil {
		return err
	}
	// The rest of the page says what to alert on, and a metric is not to be forgotten there.
	for _, name := range names {
		if !bytes.Contains(text, []byte(name)) {
			return fmt.Errorf("%s says nothing about the metric %s", operations, name)
		}
	}
	if text, err = replace(operations, text, "metrics", metrics); err != nil {
		return err
	}
	return os.WriteFile(operations, text, 0o644)
}

func writeEnforcers() error {
	text, err := os.ReadFile(enforcers)
	if err != nil {
		return err
	}
	if text, err = replace(enforcers, text, "ledger", ledgerTable()); err != nil {
		return err
	}
	return os.WriteFile(enforcers, text, 0o644)
}

func ledgerTable() string {
	table := "| Condition | Kuadrant | Envoy Gateway |\n|---|---|---|\n"
	for _, c := range ledger.All {
		table += row(c.Name, entry(c.Kuadrant), entry(c.EnvoyGateway))
	}
	return table
}

func entry(e ledger.Entry) string {
	if e.Note == "" {
		return string(e.How)
	}
	return string(e.How) + ": " + e.Note
}

// replace puts a table between the two comments that have its name.
func replace(page string, text []byte, name, table string) ([]byte, error) {
	begin, end := "<!-- begin "+name+": make docs -->\n", "<!-- end "+name+" -->"
	before, rest, ok := bytes.Cut(text, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return nil, fmt.Errorf("%s lacks %q or, after it, %q", page, strings.TrimSpace(begin), end)
	}
	return bytes.Join([][]byte{before, []byte(begin), []byte(table), []byte(end), after}, nil), nil
}

// flagLine is a flag as pflag prints it: its name, the word for its value, what it does, and its default.
var flagLine = regexp.MustCompile(`^ +(?:-., )?--(\S+)(?: (\S+))? {3,}(.*?)(?: \(default (.*)\))?$`)

// flagTable reads the operator's own help: the flags are in a package main, which nothing can import.
func flagTable() (string, error) {
	help, err := exec.Command("go", "run", "./cmd/manager", "--help").Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			return "", fmt.Errorf("go run ./cmd/manager --help: %w: %s", err, failed.Stderr)
		}
		return "", fmt.Errorf("go run ./cmd/manager --help: %w", err)
	}
	_, list, ok := strings.Cut(string(help), "\nFlags:\n")
	if !ok {
		return "", fmt.Errorf("the operator's help lists no flags:\n%s", help)
	}
	out := "| Flag | Value | Default | |\n|---|---|---|---|\n"
	for line := range strings.Lines(list) {
		m := flagLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			return "", fmt.Errorf("the operator's help has a line of an unknown form: %q", line)
		}
		if m[1] == "help" {
			continue
		}
		out += row("`--"+m[1]+"`", code(m[2]), code(m[4]), m[3])
	}
	return out, nil
}

// description is how prometheus prints what it knows of a metric, and gives no other access to.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "([^"]*)", (?:unit: "[^"]*", )?constLabels: \{.*?\}, variableLabels: \{(.*?)\}\}$`)

func metricTable() (table string, names []string, err error) {
	table = "| Metric | Type | Labels | |\n|---|---|---|---|\n"
	for _, collector := range controllers.Collectors() {
		kind := ""
		switch collector.(type) {
		case *prometheus.GaugeVec:
			kind = "gauge"
		case *prometheus.CounterVec:
			kind = "counter"
		case prometheus.Histogram:
			kind = "histogram"
		default:
			return "", nil, fmt.Errorf("a metric is a %T, which this program does not know", collector)
		}
		descriptions := make(chan *prometheus.Desc, 1) // each of these types has one
		collector.Describe(descriptions)
		text := (<-descriptions).String()
		m := description.FindStringSubmatch(text)
		if m == nil {
			return "", nil, fmt.Errorf("the description of a metric has an unknown form: %s", text)
		}
		names = append(names, m[1])
		table += row("`"+m[1]+"`", kind, code(strings.ReplaceAll(m[3], ",", "`, `")), m[2])
	}
	return table, names, nil
}

func row(cells ...string) string {
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(cell, "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
