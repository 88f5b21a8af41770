package kuadrant

import (
	"fmt"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"

	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/plan"
)

// Every identity that wins is an object with these fields. principal is for people and for auth.identity in CEL rules;
// principals holds all that the caller proved, so that a token and a certificate count together although Authorino keeps
// one identity only.
const (
	fieldPrincipal  = "principal"
	fieldPrincipals = "principals"
)

// spiffeRegex is the form of a SPIFFE ID (SPIFFE ID specification, 2).
const spiffeRegex = `spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)*`

// xfccRegex describes an x-forwarded-client-cert value with exactly one element and exactly one unquoted URI that is a
// SPIFFE ID. Values are quoted strings without backslashes and inner quotes, or hold none of the characters that separate.
// What it does not match is no identity: several proxies in a row, several URIs, escaped quotes.
//
// Source: Envoy's HTTP header documentation, x-forwarded-client-cert.
const xfccRegex = `^((By|Hash|Cert|Chain|Subject|DNS)=("[^"\\]*"|[^",;=\\]*);)*URI=` + spiffeRegex +
	`(;(By|Hash|Cert|Chain|Subject|DNS)=("[^"\\]*"|[^",;=\\]*))*$`

const headerXFCC = "x-forwarded-client-cert"

// spiffePresent is the condition under which a SPIFFE ID can be read, spiffeID the text that reads it then.
func (o Options) spiffePresent() string {
	if o.SPIFFEFrom != SPIFFEFromXFCC {
		return "has(source.principal) && source.principal.matches(" + cel.Quote("^"+spiffeRegex+"$") + ")"
	}
	// A quoted Subject may hold ;URI=…; the count keeps it from being taken for the real one.
	return fmt.Sprintf("has(request.headers) && %s in request.headers && %s.matches(%s) && size(%s) == 1",
		cel.Quote(headerXFCC), xfccValue, cel.Quote(xfccRegex), xfccURIs)
}

const (
	xfccValue = "request.headers['" + headerXFCC + "']"
	xfccURIs  = xfccValue + ".split(';').filter(x, x.startsWith('URI='))"
)

func (o Options) spiffeID() string {
	if o.SPIFFEFrom != SPIFFEFromXFCC {
		return "source.principal"
	}
	return xfccURIs + "[0].substring(4)"
}

// authentication returns the identity evaluators for the kinds of identity that a plan looks at.
func (o Options) authentication(ids plan.Identities) map[string]kuadrantv1.MergeableAuthenticationSpec {
	out := map[string]kuadrantv1.MergeableAuthenticationSpec{}
	if ids.Token {
		out[KeyServiceAccount] = o.serviceAccount(ids.SPIFFE)
	}
	if ids.SPIFFE {
		var spec kuadrantv1.MergeableAuthenticationSpec
		spec.Priority = 1
		spec.Conditions = predicates(o.spiffePresent())
		spec.Plain = &authorinov1beta3.PlainIdentitySpec{Expression: authorinov1beta3.CelExpression(
			fmt.Sprintf("{'%s': %s, '%s': [%s]}", fieldPrincipal, o.spiffeID(), fieldPrincipals, o.spiffeID()))}
		out[KeySPIFFE] = spec
	}
	if ids.Anonymous {
		var spec kuadrantv1.MergeableAuthenticationSpec
		spec.Priority = 2
		spec.AnonymousAccess = &authorinov1beta3.AnonymousAccessSpec{}
		spec.Overrides = authorinov1beta3.ExtendedProperties{fieldPrincipal: {Expression: "''"}, fieldPrincipals: {Expression: "[]"}}
		out[KeyAnonymous] = spec
	}
	return out
}

// serviceAccount verifies a bearer token. A username that looks like a SPIFFE ID is not taken over, so that the two kinds
// of principal never mix; nor is one with a blank, which no ServiceAccount has and which the set of grants could read in
// two ways. No override can fail: Authorino would keep the identity without it, and where another identity
// succeeds later, take one of the two by chance.
func (o Options) serviceAccount(spiffe bool) kuadrantv1.MergeableAuthenticationSpec {
	var spec kuadrantv1.MergeableAuthenticationSpec
	spec.Conditions = predicates("has(request.headers) && 'authorization' in request.headers && request.headers['authorization'].startsWith('Bearer ')")
	user, present := "auth.identity.user.username", "has(auth.identity.user) && has(auth.identity.user.username)"
	verified := fmt.Sprintf("%[1]s && !%[2]s.startsWith('%[3]s') && !%[2]s.contains(' ')", present, user, plan.SPIFFEPrefix)
	if o.Verify == VerifyJWT {
		spec.Jwt = &authorinov1beta3.JwtAuthenticationSpec{IssuerUrl: o.Issuer}
		user = "auth.identity.sub"
		// Authorino's JWT evaluator does not look at aud. A ServiceAccount token has it as a list.
		verified = fmt.Sprintf("has(auth.identity.sub) && %[1]s.startsWith('%[2]s') && !%[1]s.contains(' ') && has(auth.identity.aud) && type(auth.identity.aud) == list && auth.identity.aud.exists(a, a in %[3]s)",
			user, plan.TokenPrefix, cel.QuoteList(o.Audiences))
	} else {
		spec.KubernetesTokenReview = &authorinov1beta3.KubernetesTokenReviewSpec{Audiences: o.Audiences}
	}
	principals := fmt.Sprintf("(%s ? [%s] : [])", verified, user)
	if spiffe {
		principals += fmt.Sprintf(" + (%s ? [%s] : [])", o.spiffePresent(), o.spiffeID())
	}
	spec.Overrides = authorinov1beta3.ExtendedProperties{
		fieldPrincipal:  {Expression: authorinov1beta3.CelExpression(verified + " ? " + user + " : ''")},
		fieldPrincipals: {Expression: authorinov1beta3.CelExpression(principals)},
	}
	return spec
}

func predicates(text string) []authorinov1beta3.PatternExpressionOrRef {
	return []authorinov1beta3.PatternExpressionOrRef{{CelPredicate: authorinov1beta3.CelPredicate{Predicate: text}}}
}
