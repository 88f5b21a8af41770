// Package coverage asks the real Envoy Gateway whether the lines of translator/coverage are true: it translates the objects of
// every case, and the configuration that comes out is searched for our rules, route by route.
//
// Two programs are asked. egctl is Envoy Gateway's own tool, and leaves out what decides many cases: creation times, labels,
// ListenerSets. egtranslate is a driver around the same translators that leaves nothing out (testdata/egtranslate).
//
// make test-e2e runs the tests; alone they are run by
//
//	ACCESSPOLICY_COMPONENTS=$(hack/components/build egctl) EGTRANSLATE=$(test/coverage/build)/egtranslate go test ./test/coverage
package coverage
