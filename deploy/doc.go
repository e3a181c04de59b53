// Package deploy holds no code: its folders are examples of how nodes are run and balanced, and its tests hold them to the
// published schemas and to the programs that read them.
//
//   - haproxy: configurations for HAProxy, and the template that they come from
//   - kubernetes: Deployment, Service, and an InferencePool of the Gateway API Inference Extension
//   - systemd, docker: a unit, an image
package deploy
