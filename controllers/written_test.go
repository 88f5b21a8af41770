package controllers

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"accesspolicy-operator/api/v1alpha1"
)

// versioned is a policy as the cache or a write of ours has it; status tells its versions apart.
func versioned(version string, generation int64, status string) *Policy {
	p := &Policy{}
	p.UID, p.ResourceVersion, p.Generation = "uid", version, generation
	p.Status.Ancestors = []v1alpha1.PolicyAncestorStatus{{ControllerName: ControllerName, Conditions: []metav1.Condition{{Type: v1alpha1.PolicyConditionProgrammed, Reason: status}}}}
	return p
}

// TestStatusOfAPolicyThatTheCacheIsBehindOn: what is compared with the status that a policy should have is what we wrote last.
func TestStatusOfAPolicyThatTheCacheIsBehindOn(t *testing.T) {
	w := newWritten()
	seen := func(p *Policy) string {
		w.catchUp(p)
		return p.Status.Ancestors[0].Conditions[0].Reason
	}
	require.Equal(t, "Programmed", seen(versioned("99", 1, "Programmed")), "nothing was written")
	w.rememberStatus(versioned("100", 1, "Pending"))
	behind := versioned("99", 1, "Programmed")
	require.Equal(t, "Pending", seen(behind))
	require.Equal(t, "100", behind.ResourceVersion, "a write has to be based on it")
	require.Equal(t, "Programmed", seen(versioned("98", 2, "Programmed")), "another generation")

	w.rememberStatus(versioned("90", 1, "NoEnforcer"))
	require.Equal(t, "Pending", seen(versioned("99", 1, "Programmed")), "an answer that came late")
	require.True(t, w.isOurStatus(versioned("100", 1, "Pending")))
	require.Equal(t, "Overridden", seen(versioned("101", 1, "Overridden")), "the cache is ahead")
	require.Nil(t, w.policies["uid"].status, "not kept longer than it is needed")
	require.Equal(t, "Programmed", seen(versioned("99", 1, "Programmed")))

	w.forgetPolicy("uid")
	require.Empty(t, w.policies)
}
