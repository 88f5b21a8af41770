package controllers

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/coverage"
)

// What a message names; the rest is counted, and `kubectl accesspolicy coverage` has it all. Few, so that one more route
// seldom changes what is written into the status of every policy.
const (
	maxDisplacers = 3
	maxPlaces     = 5
)

// displaced reports whether something stands in place of ours on a line. That a listener does not speak HTTP is nobody's
// doing and a finding of its own.
func displaced(l *coverage.Line) bool { return l.Lacking() && l.Reason != coverage.NotHTTP }

// displacement says where a policy on a listener, "" for the whole Gateway, has no effect. The zero value holds everywhere.
type displacement struct {
	// reason is Overridden where it has effect nowhere, PartiallyOverridden where it has in part, "" where it has everywhere.
	reason, message string
}

// displacements are worked out once for each listener: there can be many policies.
type displacements struct {
	lines []coverage.Line
	known map[string]displacement
}

func newDisplacements(lines []coverage.Line) *displacements {
	return &displacements{lines: lines, known: map[string]displacement{}}
}

func (d *displacements) of(section string) displacement {
	out, known := d.known[section]
	if !known {
		out = displacementOf(d.lines, section)
		d.known[section] = out
	}
	return out
}

// displacementOf sums up the lines about a listener, or about all of them. A listener by itself counts for those routes that
// are not there yet, so where there are routes it is they that tell whether a policy has effect anywhere.
func displacementOf(lines []coverage.Line, section string) displacement {
	var lacking []coverage.Line
	type count struct{ routes, routesHeld, held int }
	held := map[string]*count{}
	for _, l := range lines {
		if l.Listener == "" || section != "" && (l.Listener != section || l.ListenerSet.Name != "") {
			continue // what is about all of a Gateway is said of each listener as well
		}
		if held[l.Enforcer] == nil {
			held[l.Enforcer] = &count{}
		}
		of := held[l.Enforcer]
		route := l.Route != coverage.RouteID{}
		switch {
		case displaced(&l):
			lacking = append(lacking, l)
		case l.Covered:
			of.held++
			if route {
				of.routesHeld++
			}
		default:
			continue
		}
		if route {
			of.routes++
		}
	}
	if len(lacking) == 0 {
		return displacement{}
	}
	out := displacement{reason: v1alpha1.PolicyReasonPartiallyOverridden}
	for _, of := range held {
		if of.routesHeld == 0 && (of.routes > 0 || of.held == 0) {
			out.reason = v1alpha1.PolicyReasonOverridden
		}
	}
	out.message = messageOf(lacking, out.reason)
	return out
}

// messageOf names, for each object that displaces ours, the places and what to do.
func messageOf(lacking []coverage.Line, reason string) string {
	var order []string
	places, why := map[string][]string{}, map[string]string{}
	for i := range lacking {
		l := &lacking[i]
		by := l.Enforcer + "\x00" + l.Reason + "\x00" + l.DisplacedBy
		if _, known := why[by]; !known {
			order, why[by] = append(order, by), l.Why
			if !strings.Contains(l.Why, l.DisplacedBy) { // the sentence is about it, and in a table it stands beside it
				why[by] = l.DisplacedBy + ": " + l.Why
			}
		}
		if place := placeOf(l); !slices.Contains(places[by], place) {
			places[by] = append(places[by], place)
		}
	}
	extent := "in force in part only"
	if reason == v1alpha1.PolicyReasonOverridden {
		extent = "not in force"
	}
	var parts []string
	for _, by := range order[:min(len(order), maxDisplacers)] {
		parts = append(parts, fmt.Sprintf("on %s: %s", bounded(places[by], maxPlaces), why[by]))
	}
	if n := len(order) - maxDisplacers; n > 0 {
		parts = append(parts, fmt.Sprintf("and so do %d more objects", n))
	}
	return extent + ", " + strings.Join(parts, "; ")
}

// placeOf names the route of a line, or the listener.
func placeOf(l *coverage.Line) string {
	switch {
	case l.Route == coverage.RouteID{}:
		return "listener " + l.ListenerName()
	case l.RuleName != "" && l.Reason == coverage.RulePolicy:
		return fmt.Sprintf("rule %s of %s", l.RuleName, l.Route)
	}
	return l.Route.String()
}

func bounded(items []string, limit int) string {
	if n := len(items) - limit; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:limit], ", "), n)
	}
	return strings.Join(items, ", ")
}

// take makes a Programmed condition say what displaces the policy. What is reported about our objects does not know it, or
// not by whom; only that they are not there yet, or refused, is said besides.
func (d displacement) take(c *metav1.Condition) {
	if d.reason == "" {
		return
	}
	message := d.message
	if c.Status != metav1.ConditionTrue && c.Reason == v1alpha1.PolicyReasonPending {
		message += "; " + c.Message
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, d.reason, message
}
