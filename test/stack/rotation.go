package stack

import "os"

// Rotation replaces the key that the API server signs tokens of ServiceAccounts with,
// in the steps in which it has to be done. An API server reads its keys when it starts,
// so it has to be started anew after each.
type Rotation struct {
	c    *Cluster
	keys pair
}

// RotateTokenKey begins: the API server trusts another key as well, and publishes it,
// from its next start on.
func (c *Cluster) RotateTokenKey(t T) *Rotation {
	t.Helper()

	former, err := os.ReadFile(c.path("pki/tokens.pub"))
	must(t, err)
	keys, err := tokenKeys()
	must(t, err)

	r := &Rotation{c: c, keys: keys}
	r.write(t, "tokens.pub", append(former, keys.certificate...))

	return r
}

// Sign has the API server sign with the new key.
func (r *Rotation) Sign(t T) { t.Helper(); r.write(t, "tokens.key", r.keys.key) }

// Retire has the API server forget the former key.
func (r *Rotation) Retire(t T) { t.Helper(); r.write(t, "tokens.pub", r.keys.certificate) }

func (r *Rotation) write(t T, name string, content []byte) {
	t.Helper()
	must(t, writeFiles(r.c.path("pki"), map[string][]byte{name: content}))
}
