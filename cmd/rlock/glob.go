package main

import "strings"

// matches reports whether a glob of Redis' own form matches a name: *, ?, [abc], [^a-z], and
// a backslash before what stands for itself. Bytes count, as on the server.
func matches(glob, name string) bool {
	for len(glob) > 0 {
		if glob[0] == '*' {
			return star(strings.TrimLeft(glob, "*"), name)
		}
		if name == "" {
			return false
		}
		switch glob[0] {
		case '?':
			glob, name = glob[1:], name[1:]
		case '[':
			in, rest := class(glob[1:], name[0])
			if !in {
				return false
			}
			glob, name = rest, name[1:]
		default:
			if glob[0] == '\\' && len(glob) > 1 {
				glob = glob[1:]
			}
			if glob[0] != name[0] {
				return false
			}
			glob, name = glob[1:], name[1:]
		}
	}
	return name == ""
}

// star reports whether glob matches the end of a name.
func star(glob, name string) bool {
	if glob == "" {
		return true
	}
	if !strings.ContainsAny(glob, `*?[\`) {
		return strings.HasSuffix(name, glob)
	}
	for i := 0; i <= len(name); i++ {
		if matches(glob, name[i:]) {
			return true
		}
	}
	return false
}

// class reports whether a byte is in a class, whose bracket is open, and returns what follows
// that.
func class(glob string, c byte) (in bool, rest string) {
	not := strings.HasPrefix(glob, "^")
	if not {
		glob = glob[1:]
	}
	for glob != "" && glob[0] != ']' {
		if glob[0] == '\\' && len(glob) > 1 {
			glob = glob[1:]
		}
		low, high := glob[0], glob[0]
		if len(glob) > 2 && glob[1] == '-' {
			high = glob[2]
			glob = glob[2:]
		}
		in = in || c >= min(low, high) && c <= max(low, high)
		glob = glob[1:]
	}
	return in != not, strings.TrimPrefix(glob, "]")
}
