// Package docs has only tests: of the Markdown files in the repository. Their links
// lead somewhere, the tests that they name exist, and their Go compiles.
package docs
