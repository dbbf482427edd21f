-- Stands in front of the scripts that answer several callers, each as if it were
-- alone.
--
-- outcomes answers each of so many callers who are not in replies yet with what
-- answer(i) returns, or in place of an error with its text: clients do not expect an
-- error in the middle of a reply.
local function outcomes(callers, answer, replies)
    for i = 1, callers do
        local ok, reply = true, replies[i]
        if not reply then
            ok, reply = pcall(answer, i)
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
end
