package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Where the API server tells who issues tokens of ServiceAccounts, and with which keys.
const (
	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/openid/v1/jwks"
)

const (
	// keysPatience is how long Gateways wait for the first read of the keys. After that they go on without: rules for
	// ServiceAccounts then grant nothing, and everything else, also what was revoked, takes effect.
	keysPatience = 30 * time.Second
	// keysRetry is the time to the next try while nothing could be read at all.
	keysRetry = time.Second
)

// issuer knows who issues tokens of ServiceAccounts and with which keys, which Envoy verifies by itself. It asks the API
// server only while wanted says so.
type issuer struct {
	// read reads a path of the API server.
	read func(ctx context.Context, path string) ([]byte, error)
	// name is the configured name, "" for the one that the API server gives.
	name    string
	refresh time.Duration
	wanted  func() bool
	// changed is called when what is known has changed, or is not waited for any more.
	changed func(context.Context) error

	mu sync.Mutex
	// issuer and keys are what was read last; empty before.
	issuer, keys string
	// waited is set when the first read has taken too long.
	waited bool
}

// known returns the issuer and its keys as a JSON Web Key Set; both are empty where they are not known.
func (i *issuer) known() (name, keys string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.issuer, i.keys
}

// settled reports whether the keys are known, or are not waited for any more.
func (i *issuer) settled() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys != "" || i.waited
}

// Start reads the issuer and its keys again and again. It runs where the Gateways are worked on, on the replica that holds
// the lease.
func (i *issuer) Start(ctx context.Context) error {
	var since time.Time
	for {
		delay := keysRetry
		if i.wanted() {
			if since.IsZero() {
				since = time.Now()
				keysGauge.WithLabelValues().Set(0)
			}
			if i.turn(ctx, time.Since(since) >= keysPatience) {
				delay = i.refresh
			}
		} else {
			since = time.Time{}
			keysGauge.Reset()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

// turn reads once and says whether that was enough for now.
func (i *issuer) turn(ctx context.Context, late bool) bool {
	name, keys, err := i.fetch(ctx)
	if err != nil {
		logf.FromContext(ctx).Error(err, "the keys of ServiceAccount tokens could not be read; those that were read last stay")
	} else {
		keysGauge.WithLabelValues().SetToCurrentTime()
	}
	if i.take(name, keys, err == nil, late) {
		if err == nil {
			logf.FromContext(ctx).Info("the keys of ServiceAccount tokens have changed", "issuer", name, "keys", keyIDs(keys))
		}
		if err := i.changed(ctx); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "give every Gateway a turn")
		}
	}
	_, keys = i.known()
	return keys != ""
}

// take remembers what was read and says whether Gateways have to look at it. What is read replaces what was known as a
// whole: a key that the API server does not name any more stops to count at once, and so do the tokens it signed.
func (i *issuer) take(name, keys string, read, late bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.waited
	i.waited = i.waited || late && i.keys == ""
	changed := i.waited != before
	if read && (name != i.issuer || keys != i.keys) {
		i.issuer, i.keys, changed = name, keys, true
	}
	return changed
}

// fetch reads issuer and keys. Anything but a name and a set with at least one key is an error.
func (i *issuer) fetch(ctx context.Context) (name, keys string, err error) {
	if name = i.name; name == "" {
		raw, err := i.read(ctx, discoveryPath)
		if err != nil {
			return "", "", fmt.Errorf("read %s of the API server: %w", discoveryPath, err)
		}
		var discovery struct {
			Issuer string `json:"issuer"`
		}
		if err := json.Unmarshal(raw, &discovery); err != nil || discovery.Issuer == "" {
			return "", "", fmt.Errorf("%s of the API server names no issuer; set --token-issuer", discoveryPath)
		}
		name = discovery.Issuer
	}
	raw, err := i.read(ctx, keysPath)
	if err != nil {
		return "", "", fmt.Errorf("read %s of the API server: %w", keysPath, err)
	}
	keys, err = keySet(raw)
	return name, keys, err
}

// publicMembers are the members of the keys that the API server signs with (RFC 7517, 7518) without which a signature cannot
// be verified. Nothing else is taken over, whatever the API server may have in it one day.
var publicMembers = []string{"kty", "use", "alg", "kid", "n", "e", "crv", "x", "y"}

// keySet brings a JSON Web Key Set into one form, whatever the order of keys and members: API servers that answer in turns
// must not look like a change.
func keySet(raw []byte) (string, error) {
	var set struct {
		Keys []map[string]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(raw, &set); err != nil {
		return "", fmt.Errorf("%s of the API server is no JSON Web Key Set: %w", keysPath, err)
	}
	if len(set.Keys) == 0 {
		return "", fmt.Errorf("%s of the API server has no key", keysPath)
	}
	var keys []json.RawMessage
	for _, key := range set.Keys {
		public := map[string]json.RawMessage{}
		for _, member := range publicMembers {
			if value, there := key[member]; there {
				public[member] = value
			}
		}
		if public["kty"] == nil {
			return "", errors.New(keysPath + " of the API server has a key without a type")
		}
		text, err := json.Marshal(public)
		if err != nil {
			return "", err
		}
		keys = append(keys, text)
	}
	slices.SortFunc(keys, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	text, err := json.Marshal(map[string]any{"keys": slices.CompactFunc(keys, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })})
	return string(text), err
}

// keyIDs are the names of the keys, for the log.
func keyIDs(keys string) []string {
	var set struct {
		Keys []struct {
			ID string `json:"kid"`
		} `json:"keys"`
	}
	_ = json.Unmarshal([]byte(keys), &set)
	var out []string
	for _, key := range set.Keys {
		out = append(out, key.ID)
	}
	return out
}
