-- Acquires and releases several locks, each as if it were alone: one does not
-- depend on what becomes of another.
--
-- KEYS[i]  lock
-- ARGV     three for each lock: lease, owner and '' acquire it without a counter;
--          owner, PUBLISH or SPUBLISH or both, and unlock channel release it
--
-- reply    those of acquire and release, in order; in place of an error its text,
--          as clients do not expect an error in the middle of a reply
local replies = {}
for i, key in ipairs(KEYS) do
    local first, second, channel = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
    local ok, reply
    if channel == '' then
        ok, reply = pcall(acquire, key, nil, first, second)
    else
        ok, reply = pcall(release, key, first, second, channel)
    end
    local err = type(reply) == 'table' and reply.err or not ok and reply
    if err then -- some versions of Redis put the place in the script before it
        reply = string.gsub(string.gsub(err, '@?user_script:%s*%d+:%s*', ''), '^%-', '')
        if not string.find(reply, '^%u+ ') then
            reply = 'ERR ' .. reply
        end
        if i == 1 and string.find(reply, '^READONLY ') then -- nothing was done, and nothing will be
            return {err = reply}
        end
    end
    replies[i] = reply
end
return replies
