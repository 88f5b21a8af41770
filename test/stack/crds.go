package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The groups of CRDs that InstallCRDs knows.
const (
	CRDsOurs              = "ours" // config/crd/bases
	CRDsGatewayAPI        = "gateway-api"
	CRDsEnvoyGateway      = "envoy-gateway"
	CRDsKuadrant          = "kuadrant"
	CRDsAuthorino         = "authorino"
	CRDsAuthorinoOperator = "authorino-operator"
	CRDsLimitadorOperator = "limitador-operator"
	CRDsDNSOperator       = "dns-operator"
	CRDsMCPGateway        = "mcp-gateway"
	CRDsIstio             = "istio"
)

const (
	modulePath = "accesspolicy-operator"

	crdLimit = 60 * time.Second
)

// InstallCRDs installs groups of CRDs and returns when the API server serves all
// of them. Those that are there already stay.
func (c *Cluster) InstallCRDs(t T, groups ...string) {
	t.Helper()

	var installed []*unstructured.Unstructured

	for _, group := range groups {
		files, err := filepath.Glob(filepath.Join(crdFolder(t, group), "*.yaml"))
		must(t, err)

		if len(files) == 0 {
			t.Fatalf("no CRDs in %s; name crds in hack/components/build", crdFolder(t, group))
		}

		for _, file := range files {
			objects, err := readObjects(file)
			must(t, err)

			installed = append(installed, objects...)
		}
	}

	for _, object := range installed {
		must(t, c.installCRD(context.Background(), object))
	}

	for _, object := range installed {
		Eventually(t, crdLimit, "CRD "+object.GetName(), func(ctx context.Context) error {
			return c.established(ctx, object.GetName())
		})
	}
}

// installCRD leaves one that is there, because to apply it again is slow.
func (c *Cluster) installCRD(ctx context.Context, object *unstructured.Unstructured) error {
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), crd(object.GetName()))
	if !apierrors.IsNotFound(err) {
		return err
	}

	// The API server writes it; generators leave a placeholder that it refuses.
	unstructured.RemoveNestedField(object.Object, "status")

	return c.apply(ctx, object)
}

// RemoveCRD deletes a CRD, such as "authpolicies.kuadrant.io", with all objects of
// its kind, and returns when it is gone.
func (c *Cluster) RemoveCRD(t T, name string) {
	t.Helper()

	must(t, c.Client.Delete(context.Background(), crd(name)))
	Eventually(t, crdLimit, "CRD "+name+" goes", func(ctx context.Context) error {
		err := c.Client.Get(ctx, client.ObjectKey{Name: name}, crd(name))
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(errors.New("it is there"), err)
	})
}

// established says whether the API server serves a CRD's kind.
func (c *Cluster) established(ctx context.Context, name string) error {
	object := crd(name)
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		return err
	}

	return Condition(object, "Established")
}

func crd(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	})
	object.SetName(name)

	return object
}

func crdFolder(t T, group string) string {
	t.Helper()

	if group == CRDsOurs {
		root, err := moduleRoot()
		must(t, err)

		return filepath.Join(root, "config", "crd", "bases")
	}

	return filepath.Join(components(t), "crds", group)
}

// moduleRoot walks up from the working folder to the go.mod of this project.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}

	for folder := start; ; {
		content, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module "+modulePath+"\n")) {
			return folder, nil
		}

		parent := filepath.Dir(folder)
		if parent == folder {
			return "", fmt.Errorf("no go.mod of module %s above %s; run the test inside the checkout", modulePath, start)
		}

		folder = parent
	}
}
