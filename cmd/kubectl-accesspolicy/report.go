package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"time"

	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/requests"
)

// printer shows suites as they finish.
type printer interface {
	suite(s *suite) error
	end() error
}

func printerFor(output string, w io.Writer, verbose bool) printer {
	switch output {
	case "json":
		return &jsonPrinter{w: w, suites: []suiteView{}}
	case "junit":
		return &junitPrinter{w: w}
	}
	return &textPrinter{w: w, verbose: verbose}
}

// textPrinter writes what go test would.
type textPrinter struct {
	w       io.Writer
	verbose bool
	// failed asks for a last line that says so, below any number of folders.
	failed bool
}

func (p *textPrinter) suite(s *suite) error {
	for _, o := range s.outcomes {
		switch {
		case o.Failure != "":
			_, _ = fmt.Fprintf(p.w, "--- FAIL: %s\n    %s: %s\n", manifest.Printable(o.Request.Name), manifest.Printable(s.file), manifest.Printable(o.Failure)) // the last write says what is wrong
		case p.verbose:
			_, _ = fmt.Fprintf(p.w, "--- PASS: %s\n", manifest.Printable(o.Request.Name))
		}
	}
	took := s.took.Round(time.Millisecond)
	switch failures := s.failures(); {
	case s.err != nil:
		_, err := fmt.Fprintf(p.w, "FAIL\t%s\t[cannot be run]\n", manifest.Printable(s.name))
		p.failed = true
		return err
	case failures > 0:
		for _, d := range s.refused {
			_, _ = fmt.Fprintf(p.w, "    refused: %s\n", manifest.Printable(d.String()))
		}
		p.failed = true
		_, err := fmt.Fprintf(p.w, "FAIL\t%s\t%s, %d failed\t%s\n", manifest.Printable(s.name), count(len(s.outcomes)), failures, took)
		return err
	}
	_, err := fmt.Fprintf(p.w, "ok  \t%s\t%s\t%s\n", manifest.Printable(s.name), count(len(s.outcomes)), took)
	return err
}

func (p *textPrinter) end() error {
	if !p.failed {
		return nil
	}
	_, err := fmt.Fprintln(p.w, "FAIL")
	return err
}

func count(n int) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
}

type suiteView struct {
	File     string        `json:"file"`
	Seconds  float64       `json:"seconds"`
	Failures int           `json:"failures"`
	Error    string        `json:"error,omitempty"`
	Requests []outcomeView `json:"requests"`
	Refused  []diagnostic  `json:"refused,omitempty"`
}

type outcomeView struct {
	Name    string `json:"name"`
	Expect  string `json:"expect"`
	Got     string `json:"got"`
	Status  int    `json:"status,omitempty"`
	By      string `json:"by,omitempty"`
	Reason  string `json:"reason"`
	Failure string `json:"failure,omitempty"`
}

type jsonPrinter struct {
	w      io.Writer
	suites []suiteView
}

func (p *jsonPrinter) suite(s *suite) error {
	v := suiteView{File: s.file, Seconds: s.took.Seconds(), Failures: s.failures(), Requests: []outcomeView{}, Refused: s.refused}
	if s.err != nil {
		v.Error = s.err.Error()
	}
	for _, o := range s.outcomes {
		got := outcomeView{Name: o.Request.Name, Expect: o.Request.Expect, Got: requests.Deny, Status: o.Decision.Status, Reason: o.Decision.Reason, Failure: o.Failure}
		if o.Decision.Allowed {
			got.Got = requests.Allow
		}
		if o.Decision.By.Policy.Name != "" {
			got.By = o.Decision.By.String()
		}
		v.Requests = append(v.Requests, got)
	}
	p.suites = append(p.suites, v)
	return nil
}

func (p *jsonPrinter) end() error { return writeJSON(p.w, map[string]any{"suites": p.suites}) }

type junitPrinter struct {
	w      io.Writer
	report junitReport
}

type junitReport struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string     `xml:"name,attr"`
	Class   string     `xml:"classname,attr"`
	Failure *junitText `xml:"failure,omitempty"`
	Error   *junitText `xml:"error,omitempty"`
}

type junitText struct {
	Message string `xml:"message,attr"`
}

func (p *junitPrinter) suite(s *suite) error {
	v := junitSuite{Name: s.name, Tests: len(s.outcomes), Failures: s.failures(), Time: fmt.Sprintf("%.3f", s.took.Seconds())}
	if s.err != nil {
		v.Errors, v.Tests = 1, v.Tests+1
		v.Cases = append(v.Cases, junitCase{Name: s.file, Class: s.name, Error: &junitText{Message: s.err.Error()}})
	}
	for _, o := range s.outcomes {
		c := junitCase{Name: o.Request.Name, Class: s.name}
		if o.Failure != "" {
			c.Failure = &junitText{Message: o.Failure}
		}
		v.Cases = append(v.Cases, c)
	}
	p.report.Suites = append(p.report.Suites, v)
	return nil
}

func (p *junitPrinter) end() error {
	text, err := xml.MarshalIndent(p.report, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.w, "%s%s\n", xml.Header, text)
	return err
}
