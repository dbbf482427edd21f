// Package docs has only tests: of the Markdown files in the repository. Their links
// lead somewhere, and the tests that they name exist.
package docs
