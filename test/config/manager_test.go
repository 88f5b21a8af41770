package config

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const image = "accesspolicy-operator:dev"

// TestEveryKustomizationBuilds decodes all of it strictly, and looks that nothing
// is outside the operator's namespace or without a name of its own.
func TestEveryKustomizationBuilds(t *testing.T) {
	for folder, stream := range everything(t) {
		t.Run(folder, func(t *testing.T) {
			for _, object := range objects(t, stream) {
				if in := object.GetNamespace(); in != "" && folder != "samples" {
					assert.Equal(t, namespace, in, "%T %s", object, object.GetName())
				}
			}
		})
	}
}

// TestThePodIsConfined holds for everything that deploys the operator.
func TestThePodIsConfined(t *testing.T) {
	for folder, stream := range everything(t) {
		all := objects(t, stream)
		for _, deployment := range only[*appsv1.Deployment](all) {
			t.Run(folder, func(t *testing.T) {
				pod := deployment.Spec.Template.Spec
				require.NotNil(t, pod.SecurityContext)
				isTrue(t, pod.SecurityContext.RunAsNonRoot, "runAsNonRoot")
				require.NotNil(t, pod.SecurityContext.SeccompProfile)
				assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
				assert.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC, "uses the host's namespaces")
				assert.Empty(t, pod.Volumes)
				assert.Empty(t, pod.InitContainers)
				assert.Empty(t, pod.PriorityClassName, "may be refused outside kube-system")
				isTrue(t, pod.AutomountServiceAccountToken, "automountServiceAccountToken")
				assert.Equal(t, operator, pod.ServiceAccountName)
				require.NotNil(t, pod.TerminationGracePeriodSeconds)
				assert.EqualValues(t, 30, *pod.TerminationGracePeriodSeconds)
				require.Len(t, pod.Containers, 1)
				container := pod.Containers[0]
				require.NotNil(t, container.SecurityContext)
				isTrue(t, container.SecurityContext.ReadOnlyRootFilesystem, "readOnlyRootFilesystem")
				isFalse(t, container.SecurityContext.AllowPrivilegeEscalation, "allowPrivilegeEscalation")
				require.NotNil(t, container.SecurityContext.Capabilities)
				assert.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
				assert.Empty(t, container.SecurityContext.Capabilities.Add)
				assert.Nil(t, container.SecurityContext.Privileged)
			})
		}
	}
}

func isTrue(t *testing.T, value *bool, name string) {
	t.Helper()
	assert.True(t, value != nil && *value, "%s is not true", name)
}

func isFalse(t *testing.T, value *bool, name string) {
	t.Helper()
	assert.True(t, value != nil && !*value, "%s is not false", name)
}

func TestTheNamespaceIsRestricted(t *testing.T) {
	made := one[*corev1.Namespace](t, objects(t, render(t, "default")))
	assert.Equal(t, namespace, made.Name)
	for _, mode := range []string{"enforce", "audit", "warn"} {
		assert.Equal(t, "restricted", made.Labels["pod-security.kubernetes.io/"+mode], mode)
	}
}

func TestTheContainer(t *testing.T) {
	all := objects(t, render(t, "default"))
	deployment := one[*appsv1.Deployment](t, all)
	container := deployment.Spec.Template.Spec.Containers[0]

	assert.EqualValues(t, 1, *deployment.Spec.Replicas)
	assert.Equal(t, image, container.Image, "make deploy substitutes exactly this")
	assert.Empty(t, container.Command, "the image's entry point is what runs")
	assert.Equal(t, []string{"--token-audience=mcp-gateway"}, container.Args)

	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	assert.Equal(t, map[string]int32{"metrics": 8080, "health": 8081}, ports)
	for path, probe := range map[string]*corev1.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		require.NotNil(t, probe, path)
		require.NotNil(t, probe.HTTPGet, path)
		assert.Equal(t, path, probe.HTTPGet.Path)
		assert.Equal(t, "health", probe.HTTPGet.Port.String())
	}

	assert.Equal(t, "50m", container.Resources.Requests.Cpu().String())
	assert.Equal(t, "64Mi", container.Resources.Requests.Memory().String())
	limit := container.Resources.Limits.Memory()
	assert.Equal(t, "256Mi", limit.String())
	require.Len(t, container.Env, 1)
	require.Equal(t, "GOMEMLIMIT", container.Env[0].Name)
	soft, err := strconv.ParseFloat(strings.TrimSuffix(container.Env[0].Value, "MiB"), 64)
	require.NoError(t, err)
	assert.InDelta(t, 0.9, soft*(1<<20)/float64(limit.Value()), 0.01, "GOMEMLIMIT against the limit")

	pods := labels.Set(deployment.Spec.Template.Labels)
	selects(t, deployment.Spec.Selector, pods)
	account := one[*corev1.ServiceAccount](t, all)
	isFalse(t, account.AutomountServiceAccountToken, "the account's automountServiceAccountToken")
}

// selects fails unless the selector selects these labels and not every pod.
func selects(t *testing.T, selector *metav1.LabelSelector, pods labels.Set) {
	t.Helper()
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	assert.True(t, compiled.Matches(pods), "%s does not select the operator's pods", compiled)
	assert.False(t, compiled.Empty(), "selects every pod of the namespace")
}

func TestOnlyMetricsAndProbesComeIn(t *testing.T) {
	all := objects(t, render(t, "default"))
	policy := one[*networkingv1.NetworkPolicy](t, all)
	selects(t, &policy.Spec.PodSelector, one[*appsv1.Deployment](t, all).Spec.Template.Labels)
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes)
	// Port by port who may connect: "" for everybody.
	from := map[string]string{}
	for _, rule := range policy.Spec.Ingress {
		require.Len(t, rule.Ports, 1, "a rule without ports admits every port")
		peers := ""
		for _, peer := range rule.From {
			peers += peer.String()
		}
		from[rule.Ports[0].Port.String()] = peers
	}
	require.Len(t, from, 2)
	assert.Contains(t, from["metrics"], "NamespaceSelector", "metrics are for pods of the cluster only")
	assert.Equal(t, "", from["health"], "the node has no name that a selector knows")
}

func TestOverlayKuadrant(t *testing.T) {
	deployment := one[*appsv1.Deployment](t, objects(t, render(t, "overlays/kuadrant")))
	assert.Equal(t, []string{"--token-audience=mcp-gateway", "--enforcer=kuadrant"}, deployment.Spec.Template.Spec.Containers[0].Args)
}

func TestTwoReplicas(t *testing.T) {
	all := objects(t, renderWith(t, "components/two-replicas"))
	deployment := one[*appsv1.Deployment](t, all)
	pods := labels.Set(deployment.Spec.Template.Labels)
	assert.EqualValues(t, 2, *deployment.Spec.Replicas)
	budget := one[*policyv1.PodDisruptionBudget](t, all)
	selects(t, budget.Spec.Selector, pods)
	require.NotNil(t, budget.Spec.MaxUnavailable)
	assert.Equal(t, "1", budget.Spec.MaxUnavailable.String())
	var keys []string
	for _, spread := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
		keys = append(keys, spread.TopologyKey)
		selects(t, spread.LabelSelector, pods)
		assert.Equal(t, corev1.ScheduleAnyway, spread.WhenUnsatisfiable, "a cluster of one node can run it too")
	}
	assert.Equal(t, []string{corev1.LabelHostname, corev1.LabelTopologyZone}, keys)
	without := one[*appsv1.Deployment](t, objects(t, render(t, "default")))
	assert.Equal(t, without.Spec.Template.Spec.Containers, deployment.Spec.Template.Spec.Containers, "the component changes more than it says")
}

// imageReference finds what looks like the name of an image or chart in a registry.
var imageReference = regexp.MustCompile(`(?m)^\s*-?\s*(image|newName|chart|repo|helmCharts|url)\s*:\s*(\S+)`)

// TestNothingIsPulled: whatever runs is built from the checkout.
func TestNothingIsPulled(t *testing.T) {
	for folder, stream := range everything(t) {
		for _, match := range imageReference.FindAllStringSubmatch(string(stream), -1) {
			assert.Equal(t, image, match[2], "%s: %s", folder, match[0])
		}
	}
	alone, components := kustomizations(t)
	for _, folder := range append(alone, components...) {
		text, err := os.ReadFile(root + "/config/" + folder + "/kustomization.yaml")
		require.NoError(t, err)
		assert.NotRegexp(t, `https?://|github\.com|\?ref=`, string(text), folder)
		assert.False(t, imageReference.Match(text), folder)
	}
}

// key names an object in a list of objects.
func key(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	return strings.Join([]string{kind, object.GetNamespace(), object.GetName()}, "/")
}
