-- Raises a fencing counter to a token that was given elsewhere, so that the next
-- one is greater. It never lowers it: repeated or late, it does no harm.
--
-- KEYS[1]  fencing counter
-- ARGV[1]  token
--
-- reply    {1}              the counter is at least the token
--          {-1, key, type}  key belongs to something that is not a counter
local token = newest(KEYS[1])
if not token then
    return strange(KEYS[1])
end
if less(token, ARGV[1]) then
    count(KEYS[1], ARGV[1], redis.call('pttl', KEYS[1]))
end
return {1}
