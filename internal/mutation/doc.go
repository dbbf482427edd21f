// Package mutation has only tests. It makes deliberate mistakes in the library,
// one at a time, and expects a named check to notice each: a proof that the
// checks can fail.
//
//	make mutate
//	RLOCK_MUTATE=1 go test -v -run 'TestMutations/all/a_wake-up_is_ignored' ./internal/mutation
//
// A mistake names a declaration of a package, and replaces a text in it: a function may move
// to another file, and be wrapped otherwise, and its mistakes stay. A mistake in a script
// names the file.
//
// A plain go test only makes sure that every mistake can still be made, and compiles, and
// that its check still exists. No file is changed: the compiler is shown another one in
// its place (go help build, -overlay), which goes for embedded scripts as well.
package mutation
