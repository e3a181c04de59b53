// Package hub fetches checkpoints from a Hugging Face-compatible hub into the cache that its own tools use,
// and finds them there.
//
// It owns names of models (Ref), which files of a repository make a checkpoint (choose.go), the protocol
// (client.go), the transfer of one file (fetch.go) and the cache's layout (cache.go). It does not read
// checkpoints: whether a model can be served is for others to say.
//
// A file's bytes go to blobs/HASH.incomplete, are hashed from there once complete, and are renamed to blobs/HASH.
// Snapshots hold nothing but links to such blobs, made when every file of the pull is there, and the ref that
// names the snapshot is written last. A model's config.json may be there alone (PullConfig). Nothing of a hub is believed: names, sizes, ranges and redirects are
// checked, and the token goes to the hub's own address alone.
//
// Invariant: what a link of a snapshot points to has been whole and of the hash that the hub stated; a pull
// that cannot establish that is an error that names the file.
package hub
