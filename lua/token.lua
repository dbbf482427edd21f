-- Stands in front of the scripts that grant with a fencing token.

-- newest returns the newest token of a counter, 0 before the first, and nil if
-- the key cannot be counted on. From 2^53 on, adding 1 is not exact: a token
-- could be given twice.
local function newest(counter)
    local what = redis.call('type', counter).ok
    if what ~= 'string' and what ~= 'none' then
        return nil
    end
    local text = redis.call('get', counter) or '0'
    if not string.find(text, '^%d+$') or #text > 16 or tonumber(text) >= 2^53 then
        return nil
    end
    return tonumber(text)
end

-- following counts on, and returns the token after one. A spare of n reserves the
-- n after that as well.
--
-- The server's clock carries the order of tokens over a lost counter, the counter
-- over a clock that was set back. A counter without TTL is one that Redisson made
-- and counts on: it stays so.
local function following(counter, token, ttl, spare)
    local now = redis.call('time')
    token = math.max(token + 1, now[1] * 1000000 + now[2])
    local keep = redis.call('pttl', counter) ~= -1
    redis.call('set', counter, string.format('%.0f', token + (spare or 0)))
    if keep then
        redis.call('pexpire', counter, ttl)
    end
    return token
end
