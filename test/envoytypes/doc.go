// Package envoytypes holds what this project writes for Envoy Gateway, and its mirror of Envoy Gateway's types, against
// those types themselves. It is a module of its own: Envoy Gateway's types need a newer Gateway API than Kuadrant's.
package envoytypes
