-- Stands in front of the scripts for several callers: each caller is answered as if alone.
--
-- outcomes answers each of so many callers without a reply yet: with the result of answer(i),
-- or, in place of an error, with the text of the error: clients do not expect an error in the
-- middle of a reply.
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
