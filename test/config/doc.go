// Package config has only tests, of what is below config/, of the Containerfile, and of
// what else is for a cluster:
//
//   - every kustomization builds, and everything in it decodes strictly;
//   - the operator has no right and no privilege that it can do without, and a real
//     API server and the operator itself agree that what it has is enough;
//   - the samples are golden cases of the translator;
//   - the command of the Containerfile makes a static binary, the same each time;
//   - the make targets hand kubectl what they say;
//   - the kind quickstart: a real API server takes its manifests, its versions are those
//     of the other tests, and its script calls what it should, with stand-ins for docker,
//     kind, kubectl and helm;
//   - shellcheck finds no fault with any script.
//
// No container runtime is needed, so whether an image comes out of a Containerfile is not
// tested.
package config
