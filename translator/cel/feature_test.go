package cel_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/cel"
)

// TestFeatures: each operation of docs/cel.md is in the group that a reader looks for it in; an engine that has no
// concatenation, for instance, must be able to tell it from a sum.
func TestFeatures(t *testing.T) {
	cases := map[string][]cel.Feature{
		`request.method == 'GET'`:                                   {cel.FeatureComparison},
		`!(request.method < 'GET') || true`:                         {cel.FeatureLogic, cel.FeatureComparison},
		`request.method in ['GET'] ? true : false`:                  {cel.FeatureLogic, cel.FeatureMembership},
		`{'a': true}['a'] && [true][0]`:                             {cel.FeatureLogic, cel.FeatureMembership},
		`size(request.path) > 3`:                                    {cel.FeatureComparison, cel.FeatureSize},
		`request.path.size() > 3`:                                   {cel.FeatureComparison, cel.FeatureSize},
		`request.path.contains('a')`:                                {cel.FeatureSearch},
		`request.path.startsWith('a')`:                              {cel.FeatureSearch},
		`request.path.matches('a')`:                                 {cel.FeatureMatches},
		`matches(request.path, 'a')`:                                {cel.FeatureMatches},
		`1 + 2 == 3`:                                                {cel.FeatureComparison, cel.FeatureArithmetic},
		`-size(request.path) % 2 == 0`:                              {cel.FeatureComparison, cel.FeatureSize, cel.FeatureArithmetic},
		`request.time + duration('1h') > request.time`:              {cel.FeatureComparison, cel.FeatureArithmetic, cel.FeatureConversion},
		`request.path + 'x' == 'x'`:                                 {cel.FeatureComparison, cel.FeatureConcatenation},
		`[1] + [2] == [1]`:                                          {cel.FeatureComparison, cel.FeatureConcatenation},
		`int('1') == 1 && double('1') > 0.0`:                        {cel.FeatureLogic, cel.FeatureComparison, cel.FeatureConversion},
		`string(1) == '1'`:                                          {cel.FeatureComparison, cel.FeatureToString},
		`request.time.getHours() == 1`:                              {cel.FeatureComparison, cel.FeatureTimeParts},
		`request.time.getDate() == 1`:                               {cel.FeatureComparison, cel.FeatureTimeParts},
		`request.time.getMilliseconds() == 1`:                       {cel.FeatureComparison, cel.FeatureMilliseconds},
		`request.time.getHours('Europe/Berlin') == 1`:               {cel.FeatureComparison, cel.FeatureTimeZone},
		`request.time.getSeconds('Europe/Berlin') == 1`:             {cel.FeatureComparison, cel.FeatureTimeZone},
		`request.path.lowerAscii() == 'a'`:                          {cel.FeatureComparison, cel.FeatureStrings},
		`request.path.substring(1) == request.path.trim()`:          {cel.FeatureComparison, cel.FeatureStrings},
		`request.path.indexOf('a') == 1`:                            {cel.FeatureComparison, cel.FeatureStrings},
		`['a'].exists(x, x == request.path)`:                        {cel.FeatureComprehension, cel.FeatureComparison},
		`has(auth.identity.user)`:                                   {cel.FeaturePresence},
		`request.headers['x-a'] == 'a' && 'x-b' in request.headers`: {cel.FeatureLogic, cel.FeatureComparison, cel.FeatureMembership},
	}
	for source, want := range cases {
		e, err := cel.Compile(source, cel.Vocabulary{ForbiddenHeader: func(string) string { return "" }})
		require.NoError(t, err, source)
		got := e.Uses().Features
		assert.Subset(t, got, want, source)
		for _, f := range got {
			assert.Contains(t, cel.Features(), f, source)
			if f == cel.FeatureConcatenation || f == cel.FeatureStrings || f == cel.FeatureToString || f == cel.FeatureTimeZone || f == cel.FeatureComprehension {
				assert.Contains(t, want, f, source)
			}
		}
	}
}
