-- Raises a fencing counter to a token that was given elsewhere, so that the next
-- one is greater. It never lowers it: repeated or late, it does no harm.
--
-- KEYS[1]  fencing counter
-- ARGV[1]  token
-- ARGV[2]  how long the counter outlives its newest token, milliseconds
--
-- reply    {1}              the counter is at least the token
--          {-1, key, type}  key belongs to something that is not a counter
local token = newest(KEYS[1])
if not token then
    return {-1, KEYS[1], redis.call('type', KEYS[1]).ok}
end
if token < tonumber(ARGV[1]) then
    local keep = redis.call('pttl', KEYS[1]) ~= -1 -- as it is when Redisson made it
    redis.call('set', KEYS[1], ARGV[1])
    if keep then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
end
return {1}
