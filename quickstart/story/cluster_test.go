package story

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"accesspolicy-operator/test/stack"
)

// TestDeployed has the operator killed and started with a stand-in for the controllers
// of a cluster: a Deployment scaled to 1 gets a pod, which takes the lease.
func TestDeployed(t *testing.T) {
	named := metav1.ObjectMeta{Namespace: deploymentNamespace, Name: deploymentName}
	killedAtOnce, started := 0, 0
	cluster := &stack.Cluster{}
	cluster.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
		WithObjects(&appsv1.Deployment{ObjectMeta: named}, &coordinationv1.Lease{ObjectMeta: named}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				if err := c.Patch(ctx, object, patch, options...); err != nil {
					return err
				}

				deployment := &appsv1.Deployment{}
				if err := c.Get(ctx, client.ObjectKeyFromObject(object), deployment); err != nil || *deployment.Spec.Replicas == 0 {
					return err
				}

				started++
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: deploymentNamespace, Name: fmt.Sprintf("pod-%d", started),
					Labels: map[string]string{"app.kubernetes.io/name": deploymentName},
				}}
				lease := &coordinationv1.Lease{ObjectMeta: named}
				taken := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"holderIdentity":"%s_0123"}}`, pod.Name))

				return errors.Join(c.Create(ctx, pod), c.Patch(ctx, lease, taken))
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				applied := (&client.DeleteOptions{}).ApplyOptions(options)
				if applied.GracePeriodSeconds != nil && *applied.GracePeriodSeconds == 0 {
					killedAtOnce++
				}

				return c.Delete(ctx, object, options...)
			},
		}).Build()
	operator := deployed{cluster}

	operator.Start(t)
	operator.Kill(t)
	assert.Equal(t, 1, killedAtOnce)

	deployment := &appsv1.Deployment{}
	require.NoError(t, cluster.Client.Get(t.Context(), client.ObjectKey{Namespace: deploymentNamespace, Name: deploymentName}, deployment))
	assert.Zero(t, *deployment.Spec.Replicas, "somebody would start it again")

	operator.Start(t)
	assert.Equal(t, 2, started)

	pods, err := operator.pods(t.Context())
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.Equal(t, "pod-2", pods[0].Name)
}
