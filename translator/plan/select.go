package plan

import "strings"

// Select returns the plan that a request meets: the one of the named listener, else the one of the listener whose host
// name fits best (an exact name before a wildcard, a longer wildcard before a shorter one, no host name last; Gateway API,
// Listener.hostname), else the one for the whole Gateway. It is nil when there is no such plan.
func Select(plans []Plan, listener, authority string) *Plan {
	var whole, best *Plan
	bestFit := -1
	host := CleanHost(authority)
	for i := range plans {
		p := &plans[i]
		switch fit := fits(p.Host, host); {
		case p.Listener == "":
			whole = p
		case listener != "" && p.Listener == listener:
			return p
		case listener == "" && fit > bestFit:
			best, bestFit = p, fit
		}
	}
	if best != nil {
		return best
	}
	return whole
}

// fits tells how well a listener's host name fits a host: -1 not at all, then the more specific the greater.
func fits(pattern, host string) int {
	suffix, wild := strings.CutPrefix(strings.ToLower(pattern), "*")
	const exact = 1 << 16
	switch {
	case pattern == "":
		return 0
	case wild && strings.HasSuffix(host, suffix) && len(host) > len(suffix):
		return len(suffix)
	case !wild && strings.EqualFold(pattern, host):
		return exact
	}
	return -1
}
