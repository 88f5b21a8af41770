// Package owned is what all generated objects have in common: their names, their owner, and how ours are told from other
// people's.
package owned

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ManagedBy is the value of LabelManagedBy on everything that we write, and the name of our field manager.
const ManagedBy = "accesspolicy-operator"

// LabelManagedBy is the label of generated objects.
const LabelManagedBy = "app.kubernetes.io/managed-by"

// MaxName is the length of an object name.
const MaxName = 253

// Meta is the metadata of a generated object of a Gateway. The Gateway owns it where it has a UID, that is in a cluster.
func Meta(gw *gwv1.Gateway, name string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: name, Namespace: gw.Namespace, Labels: map[string]string{LabelManagedBy: ManagedBy}}
	if gw.UID != "" {
		// blockOwnerDeletion is left out: under foreground deletion the rules would go before the Gateway does.
		yes := true
		meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: gwv1.GroupVersion.String(), Kind: "Gateway", Name: gw.Name, UID: gw.UID, Controller: &yes}}
	}
	return meta
}

// Is tells our objects of a Gateway by owner and field manager; where no field manager is recorded, by the label in its
// place. Owner and label can be set by anybody who may write such objects, and a label is easily lost.
func Is(gw *gwv1.Gateway, object *metav1.ObjectMeta) bool {
	marked := object.Labels[LabelManagedBy] == ManagedBy
	if len(object.ManagedFields) > 0 {
		marked = slices.ContainsFunc(object.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == ManagedBy })
	}
	return marked && gw.UID != "" && slices.ContainsFunc(object.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == "Gateway" && ref.UID == gw.UID
	})
}

// Name returns the name of the object for a listener of a Gateway, or for the whole Gateway (listener ""): the first
// candidate that is not taken by somebody else, and the ones that are.
//
// The candidates are <gateway>-auth for the whole Gateway, as the published proof of concept has it, then names with the
// first 8 hex digits of a hash, cut to the length of an object name.
func Name(gateway, listener string, taken func(name string) bool) (name string, skipped []string) {
	name = gateway + "-auth"
	if listener != "" || len(name) > MaxName {
		name = hashed(gateway, listener, 0)
	}
	for try := 1; taken(name); try++ {
		skipped = append(skipped, name)
		name = hashed(gateway, listener, try)
	}
	return name, skipped
}

// hashed is <gateway>-<listener>-<hash>, for a whole Gateway <gateway>-auth-<hash>. try counts the names that were taken.
func hashed(gateway, listener string, try int) string {
	kind, section := "listener", listener
	if listener == "" {
		kind, section = "gateway", "auth"
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", kind, gateway, section, try))
	suffix := "-" + hex.EncodeToString(sum[:])[:8]
	base := gateway + "-" + section
	if len(base)+len(suffix) > MaxName {
		base = strings.TrimRight(base[:MaxName-len(suffix)], "-.")
	}
	return base + suffix
}
