# Completion of rlock for bash: source <(rlock completion bash)

_rlock() {
	local line=${COMP_LINE:0:COMP_POINT} words candidate i
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then # what follows is another command
			if declare -F _command_offset >/dev/null; then
				_command_offset $((i + 1))
			elif ((COMP_CWORD == i + 1)); then
				while read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}" | sort -u)
			fi
			return
		fi
	done
	# Not COMP_WORDS: bash has split those at each colon. Nothing is evaluated here, only quotes are removed.
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	words=("${words[@]//[\"\']/}")
	words[0]=${words[0]/#\~\//$HOME/}
	local cur=${words[${#words[@]} - 1]} breaks=${COMP_WORDBREAKS//[^:=]/} kept=
	[[ -n $breaks ]] && kept=${cur%"${cur##*[$breaks]}"} # what bash does not replace
	while IFS=$'\t' read -r candidate _; do
		[[ $candidate == "$cur"* ]] && COMPREPLY+=("$(printf %q "${candidate#"$kept"}")")
	done < <("${words[@]}" --generate-shell-completion 2>/dev/null)
}

complete -o bashdefault -o default -F _rlock rlock
