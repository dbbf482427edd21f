#compdef rlock
# Completion of rlock for zsh: source <(rlock completion zsh), or as _rlock in a directory of $fpath

_rlock() {
	local -a given candidates
	local line name
	integer dash=${words[(i)--]}
	if (( dash < CURRENT )); then # what follows is another command
		shift $dash words
		(( CURRENT -= dash ))
		_normal
		return
	fi
	given=("${(@Q)words[1,CURRENT]}") # nothing is evaluated, only quotes are removed
	given[1]=${given[1]/#\~\//$HOME/}
	for line in "${(@f)$("${given[@]}" --generate-shell-completion 2>/dev/null)}"; do
		name=${line%%$'\t'*}
		[[ -n $name ]] || continue
		name=${${name//\\/\\\\}//:/\\:}
		[[ $line == *$'\t'* ]] && name+=:${line#*$'\t'}
		candidates+=($name)
	done
	if (( $#candidates )); then
		_describe rlock candidates
	else
		_files
	fi
}

if [[ $funcstack[1] == _rlock ]]; then
	_rlock "$@"
else
	compdef _rlock rlock
fi
