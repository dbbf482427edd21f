-- Claims a fire, unless it or a later one is claimed.
--
-- KEYS[1]  companion of the job's lock
-- ARGV[1]  fire
-- ARGV[2]  name of the claim, the same in each repetition
-- ARGV[3]  the server's time from which on the claim has no effect
-- ARGV[4]  fire after it; 0: none
-- ARGV[5]  ms for which the claim is kept
--
-- reply    {0, … another claim's, 1 this claim's, 2 too late; server's time; newest fire before; the one after that}
local time, old = now(), redis.call('hmget', KEYS[1], 'fire', 'next', 'by')
local fire, outcome = tonumber(old[1] or 0), 1
if fire > tonumber(ARGV[1]) or fire == tonumber(ARGV[1]) and old[3] ~= ARGV[2] then
    outcome = 0
elseif fire < tonumber(ARGV[1]) and time > tonumber(ARGV[3]) then
    outcome = 2
else
    -- Also what is there already, because replicas acknowledge only what is written.
    redis.call('hset', KEYS[1], 'is', 'fire', 'fire', ARGV[1], 'next', ARGV[4], 'by', ARGV[2])
    redis.call('pexpire', KEYS[1], ARGV[5])
end
return {outcome, time, fire, tonumber(old[2] or 0)}
