package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/translator/coverage"
	"accesspolicy-operator/translator/owned"
	"accesspolicy-operator/translator/plan"
)

// coverage says where the objects of a Gateway have effect: for the enforcers whose word counts, from what everybody's
// objects say. It gives nothing where there are no such objects.
func (r *GatewayReconciler) coverage(ctx context.Context, w *world, t *translation, live map[objectName]generated) ([]coverage.Line, error) {
	objects := t.objectsOf(w.reported())
	if len(objects) == 0 {
		return nil, nil
	}
	s := surroundings{GatewayReconciler: r, world: w, namespaces: sets.New(w.gateway.Namespace), routes: sets.New[coverage.RouteID]()}
	if err := s.gather(ctx); err != nil {
		return nil, err
	}
	for _, object := range objects {
		if object.kind != authConfigs {
			s.in.Baselines = append(s.in.Baselines, object.aged(live[object.objectName]))
		}
	}
	return coverage.Compute(s.in), nil
}

// unseen are the findings about what coverage does not see of a Gateway that has objects of ours.
func (r *GatewayReconciler) unseen(w *world, t *translation) []plan.Finding {
	unreadable := r.enforcers.optional.unreadable()
	if len(unreadable) == 0 || len(t.objectsOf(w.reported())) == 0 {
		return nil
	}
	return []plan.Finding{{Severity: plan.Warning, Reason: reasonCoverageIncomplete, Gateway: client.ObjectKeyFromObject(&w.gateway),
		Message: "whether other objects displace the policies is known in part only, because some cannot be read: " + strings.Join(unreadable, "; ") +
			". Compare the operator's ClusterRole with the one of its version"}}
}

// aged is the object as coverage takes it, with its age in the cluster, by which it may win or lose.
func (o *wanted) aged(live generated) coverage.Baseline {
	b := o.baseline
	if live == nil {
		return b
	}
	if b.Security != nil {
		b.Security = b.Security.DeepCopy()
		b.Security.CreationTimestamp = live.GetCreationTimestamp()
	} else {
		b.Auth = b.Auth.DeepCopy()
		b.Auth.CreationTimestamp = live.GetCreationTimestamp()
	}
	return b
}

// surroundings gathers what can stand in place of the objects of a Gateway. It reads no more than the namespaces of the
// Gateway, of its routes and of its ListenerSets, and the few objects that may reach into them from elsewhere.
type surroundings struct {
	*GatewayReconciler
	world *world
	in    coverage.Input
	// namespaces are those that something of the Gateway is in, routes those that are in the input already.
	namespaces sets.Set[string]
	routes     sets.Set[coverage.RouteID]
}

func (s *surroundings) gather(ctx context.Context) error {
	var class gwv1.GatewayClass
	if err := s.client.Get(ctx, types.NamespacedName{Name: string(s.world.gateway.Spec.GatewayClassName)}, &class); err != nil {
		return client.IgnoreNotFound(err) // then the Gateway is not looked after any more, and has a turn for it
	}
	s.in.Classes, s.in.EnvoyControllers = []gwv1.GatewayClass{class}, s.config.EnvoyGatewayControllers
	proxies, err := s.enforcers.optional.list(ctx, kindEnvoyProxy)
	if err != nil {
		return err
	}
	s.add(ctx, proxies)
	gateways := gwv1.GatewayList{Items: []gwv1.Gateway{s.world.gateway}}
	if slices.ContainsFunc(proxies, merges) {
		if err := s.client.List(ctx, &gateways, client.MatchingFields{indexClass: class.Name}); err != nil {
			return fmt.Errorf("list Gateways: %w", err)
		}
	}
	for i := range gateways.Items {
		if err := s.gateway(ctx, &gateways.Items[i]); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{s.securityPolicies, s.authPolicies, s.others, s.labels} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// add takes objects as they come. One that cannot be read has no say; its CRD keeps such from being written.
func (s *surroundings) add(ctx context.Context, objects []unstructured.Unstructured) {
	for i := range objects {
		if err := s.in.Add(&objects[i]); err != nil {
			logf.FromContext(ctx).Error(err, "passed over in telling where policies have effect")
		}
	}
}

// gateway adds a Gateway with its ListenerSets and routes.
func (s *surroundings) gateway(ctx context.Context, gw *gwv1.Gateway) error {
	name := client.ObjectKeyFromObject(gw)
	of := coverage.Gateway{Gateway: *gw}
	more, err := s.enforcers.optional.gateway(ctx, name)
	if err != nil {
		return err
	}
	if more != nil {
		read, err := coverage.GatewayFrom(more)
		if err != nil {
			return err
		}
		of.AllowedListeners = read.AllowedListeners
	}
	s.in.Gateways = append(s.in.Gateways, of)
	parents := []string{targetKey(kindGateway, name.Namespace, name.Name)}
	listenerSets, err := s.enforcers.optional.list(ctx, kindListenerSet, client.MatchingFields{indexGateway: name.String()})
	if err != nil {
		return err
	}
	s.add(ctx, listenerSets)
	for i := range listenerSets {
		s.namespaces.Insert(listenerSets[i].GetNamespace())
		parents = append(parents, targetKey(kindListenerSet, listenerSets[i].GetNamespace(), listenerSets[i].GetName()))
	}
	for _, parent := range parents {
		if err := s.routesOf(ctx, parent); err != nil {
			return err
		}
	}
	return nil
}

func (s *surroundings) routesOf(ctx context.Context, parent string) error {
	attached := client.MatchingFields{indexParent: parent}
	var list gwv1.HTTPRouteList
	if err := s.client.List(ctx, &list, attached); err != nil {
		return fmt.Errorf("list HTTPRoutes: %w", err)
	}
	for i := range list.Items {
		s.route(coverage.RouteFromHTTP(&list.Items[i]))
	}
	for _, kind := range optionalRoutes {
		routes, err := s.enforcers.optional.list(ctx, kind, attached)
		if err != nil {
			return err
		}
		for i := range routes {
			read, err := coverage.RouteFrom(&routes[i])
			if err != nil {
				return err
			}
			s.route(read)
		}
	}
	return nil
}

// route adds a route once; it can be attached in several places.
func (s *surroundings) route(r coverage.Route) {
	if s.routes.Has(r.ID()) {
		return
	}
	s.routes.Insert(r.ID())
	s.namespaces.Insert(r.Namespace)
	s.in.Routes = append(s.in.Routes, r)
}

// securityPolicies adds everybody's but ours of this Gateway.
func (s *surroundings) securityPolicies(ctx context.Context) error {
	if !s.world.installed.EnvoyGateway {
		return nil
	}
	for _, where := range s.reach() {
		var list SecurityPolicyList
		if err := s.client.List(ctx, &list, where.option); err != nil {
			return fmt.Errorf("list SecurityPolicies: %w", securityPolicies.absent(err))
		}
		for i := range list.Items {
			sp := &list.Items[i]
			if !where.has(sp) && !owned.Is(&s.world.gateway, &sp.ObjectMeta) {
				s.in.SecurityPolicies = append(s.in.SecurityPolicies, sp.SecurityPolicy)
			}
		}
	}
	return nil
}

// authPolicies adds everybody's but ours of this Gateway. They are copied: Kuadrant's code for merging them marks their
// rules.
func (s *surroundings) authPolicies(ctx context.Context) error {
	if !s.world.installed.Kuadrant || !s.world.reported().Kuadrant {
		return nil
	}
	for _, namespace := range sets.List(s.namespaces) {
		var list AuthPolicyList
		if err := s.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("list AuthPolicies: %w", authPolicies.absent(err))
		}
		for i := range list.Items {
			if !owned.Is(&s.world.gateway, &list.Items[i].ObjectMeta) {
				s.in.AuthPolicies = append(s.in.AuthPolicies, *list.Items[i].DeepCopy())
			}
		}
	}
	return nil
}

// others adds what changes filters, and what lets policies choose across namespaces.
func (s *surroundings) others(ctx context.Context) error {
	for _, where := range s.reach() {
		extensions, err := s.enforcers.optional.list(ctx, kindExtensionPolicy, where.option)
		if err != nil {
			return err
		}
		s.add(ctx, slices.DeleteFunc(extensions, func(u unstructured.Unstructured) bool { return where.has(&u) }))
	}
	for _, namespace := range sets.List(s.namespaces) {
		grants, err := s.enforcers.optional.list(ctx, kindReferenceGrant, client.InNamespace(namespace))
		if err != nil {
			return err
		}
		s.add(ctx, grants)
	}
	patches, err := s.enforcers.optional.list(ctx, kindPatchPolicy) // those of a class can be anywhere
	if err != nil {
		return err
	}
	s.add(ctx, patches)
	return nil
}

// labels adds those of the namespaces.
func (s *surroundings) labels(ctx context.Context) error {
	s.in.Namespaces = map[string]map[string]string{}
	for namespace := range s.namespaces {
		object := namespaceMetadata()
		if err := s.client.Get(ctx, types.NamespacedName{Name: namespace}, object); err != nil {
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return fmt.Errorf("read namespace %s: %w", namespace, err)
		}
		s.in.Namespaces[namespace] = object.Labels
	}
	return nil
}

// lookup is one list of policies, and what it has of those that another one gave.
type lookup struct {
	option client.ListOption
	has    func(client.Object) bool
}

// reach are the lists of policies that can be attached to something of the Gateway: those in its namespaces, and those
// elsewhere that choose targets across namespaces.
func (s *surroundings) reach() []lookup {
	var out []lookup
	for _, namespace := range sets.List(s.namespaces) {
		out = append(out, lookup{client.InNamespace(namespace), func(client.Object) bool { return false }})
	}
	return append(out, lookup{client.MatchingFields{indexCrossing: crossesNamespaces}, func(o client.Object) bool { return s.namespaces.Has(o.GetNamespace()) }})
}
