// Package config has only tests, of what is below config/ and of the Containerfile:
//
//   - every kustomization builds, and everything in it decodes strictly;
//   - the operator has no right and no privilege that it can do without, and a real
//     API server and the operator itself agree that what it has is enough;
//   - the samples are golden cases of the translator;
//   - the command of the Containerfile makes a static binary, the same each time;
//   - the make targets hand kubectl what they say.
//
// No container runtime is needed, so whether an image comes out of the
// Containerfile is not tested.
package config
