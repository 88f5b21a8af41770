package controllers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestCachedSecurityPolicy(t *testing.T) {
	const text = `{"apiVersion":"gateway.envoyproxy.io/v1alpha1","kind":"SecurityPolicy","metadata":{"name":"x","namespace":"demo","uid":"1","annotations":{"a":"b"},
		"managedFields":[{"manager":"%MANAGER%","operation":"Apply","fieldsV1":{"f:spec":{}}}]},
		"spec":{"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"prod"}],"jwt":{"providers":[]},"newer":1},
		"status":{"ancestors":[{"ancestorRef":{"name":"prod"},"controllerName":"c","conditions":[]}]}}`
	read := func(manager string) *SecurityPolicy {
		sp := &SecurityPolicy{}
		require.NoError(t, sp.UnmarshalJSON([]byte(strings.ReplaceAll(text, "%MANAGER%", manager))))
		return sp
	}
	ours, theirs := read("accesspolicy-operator"), read("somebody")
	for _, sp := range []*SecurityPolicy{ours, theirs} {
		require.Equal(t, "x", sp.Name)
		require.Empty(t, sp.Annotations)
		require.Equal(t, gwv1.ObjectName("prod"), sp.Spec.TargetRefs[0].Name)
	}
	require.Equal(t, int64(1), ours.Live["newer"], "fields that this version does not know are compared as well")
	require.NotNil(t, ours.ManagedFields[0].FieldsV1)
	require.Len(t, ours.Status.Ancestors, 1)
	require.Nil(t, theirs.Live)
	require.Nil(t, theirs.ManagedFields[0].FieldsV1, "of others little is kept")
	require.Empty(t, theirs.Status.Ancestors)

	odd := &SecurityPolicy{}
	require.NoError(t, odd.UnmarshalJSON([]byte(`{"metadata":{"name":"odd"},"spec":"?","status":[]}`)), "one that cannot be read must not keep others from being listed")
}

// TestCachedClientTrafficPolicy: what cannot be read may let any certificate in, anywhere in its namespace.
func TestCachedClientTrafficPolicy(t *testing.T) {
	good, bad := &ClientTrafficPolicy{}, &ClientTrafficPolicy{}
	require.NoError(t, good.UnmarshalJSON([]byte(`{"metadata":{"name":"x"},"spec":{"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"prod"}],
		"tls":{"clientValidation":{"mode":"VerifyIfGiven","caCertificateRefs":[{"name":"ca"}]}},"newer":{}}}`)))
	require.Empty(t, good.Spec.TLS.ClientValidation.Unverified())
	require.NoError(t, bad.UnmarshalJSON([]byte(`{"metadata":{"name":"x"},"spec":{"tls":{"clientValidation":{"mode":{"a":"newer form"}}}}}`)))
	require.NotEmpty(t, bad.Spec.TLS.ClientValidation.Unverified())
	require.Len(t, bad.Spec.TargetSelectors, 1)
}
